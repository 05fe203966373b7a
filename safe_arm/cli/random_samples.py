"""Generate calibration data for a first look: ``safe-arm check --calibrate random``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from safe_arm.cli.calibration import ModelInput
from safe_arm.cli.progress import Steps
from safe_arm.core.errors import UsageError

SAMPLES = 8


def random_arrays(inputs: Sequence[ModelInput], steps: Steps) -> dict[str, np.ndarray]:
    """Return by input the same samples each time, and say what they are: normal for floats, else integers.

    Dynamic sizes are those of the example that the model was exported with.

    Raises:
        UsageError: an input of a dtype that NumPy does not know.
    """
    generator = np.random.default_rng(0)
    steps.note(
        f"Note: calibrated on {SAMPLES} random samples, the same in each run: what is delegated, and why, is right; "
        "the accuracy and the differences in codes mean nothing"
    )
    arrays = {}
    for each in inputs:
        shape = (SAMPLES, *each.example)
        dtype = _dtype(each)
        if dtype.kind == "f":
            arrays[each.name] = generator.standard_normal(shape).astype(dtype)
            continue
        low, high = _range(dtype)
        steps.note(
            f"Note: input {each.name!r} is {each.dtype}: random integers from {low} to {high}"
        )
        arrays[each.name] = generator.integers(low, high, shape, endpoint=True).astype(
            dtype
        )
    return arrays


def _dtype(wanted: ModelInput) -> np.dtype:
    try:
        dtype = np.dtype(wanted.dtype)
    except TypeError:
        dtype = np.dtype(object)
    # Once loaded, ml_dtypes adds names of types that torch does not take.
    if dtype.kind == "O" or dtype.isbuiltin != 1:
        raise UsageError(
            f"input {wanted.name!r} is {wanted.dtype}, which NumPy does not have; no sample can be given"
        )
    return dtype


def _range(dtype: np.dtype) -> tuple[int, int]:
    """Return the least and the largest integer: the whole range of 8 bits, else 0 and 1, which any index may be."""
    if dtype.itemsize > 1 or dtype.kind == "b":
        return 0, 1
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
