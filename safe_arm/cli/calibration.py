"""Read calibration data from an .npz and check it against the model's inputs, without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from safe_arm.core.errors import UsageError


@dataclass(frozen=True)
class ModelInput:
    """One input tensor of the model.

    Attributes:
        name: its name.
        shape: its shape, None where that is dynamic.
        dtype: the name of its dtype.
        example: the shape it was exported with.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    example: tuple[int, ...] = ()

    @property
    def wants(self) -> str:
        """Return a description of the calibration array for this input, for messages."""
        if not self.shape:
            return f"{self.dtype} of shape (N,)"
        sizes = ["any" if size is None else str(size) for size in self.shape]
        return f"{self.dtype} of shape (N, {', '.join(sizes)})"


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read an .npz, with pickled content refused.

    Raises:
        UsageError: it is missing, unreadable, empty or holds something other than plain arrays.
    """
    if path.exists() and not path.is_file():
        kind = "a directory" if path.is_dir() else "not a regular file"
        raise _unreadable(path, f"is {kind}")
    try:
        data = np.load(path, allow_pickle=False)
        if not isinstance(data, Mapping):
            raise ValueError("it holds a single array (.npy)")
        with data:  # type: ignore[attr-defined]
            arrays = {name: data[name] for name in data}
    except FileNotFoundError as error:
        raise _unreadable(path, "does not exist") from error
    except Exception as error:  # NumPy, zipfile and zlib raise all kinds
        raise _unreadable(
            path,
            f"is not a readable .npz ({getattr(error, 'strerror', None) or error})",
        ) from error
    if not arrays:
        raise _unreadable(path, "holds no arrays")
    if any(not isinstance(array, np.ndarray) for array in arrays.values()):
        raise _unreadable(path, "is a zip archive with more than .npy arrays in it")
    return arrays


def _unreadable(path: Path, what: str) -> UsageError:
    return UsageError(
        f"calibration data {str(path)!r} {what}; write it with numpy.savez(path, <input>=array, ...)"
    )


def match(
    arrays: Mapping[str, np.ndarray], inputs: Sequence[ModelInput]
) -> tuple[np.ndarray, ...]:
    """Return the arrays in the order of the model's inputs, contiguous and in native byte order.

    Args:
        arrays: by input name, or ``arr_0``, ``arr_1``, ... by position; each of shape (N, \\*input shape).
        inputs: the model's inputs, in order.

    Raises:
        UsageError: names, number, dtypes, shapes, N or values do not fit; the message names the array.
    """
    names, ordered, counts = _names(arrays, inputs), [], []
    for name, wanted in zip(names, inputs, strict=True):
        array = arrays[name]
        _check_array(array, wanted)
        native = array.dtype.newbyteorder("=")
        ordered.append(np.asarray(array, dtype=native, order="C"))
        counts.append(f"{wanted.name} {len(array)}")
    if len({len(array) for array in ordered}) > 1:
        raise UsageError(
            f"calibration arrays have different numbers of samples: {', '.join(counts)}; give every input the same N"
        )
    return tuple(ordered)


def _names(arrays: Mapping[str, np.ndarray], inputs: Sequence[ModelInput]) -> list[str]:
    names = [wanted.name for wanted in inputs]
    positional = [f"arr_{index}" for index in range(len(inputs))]
    for order in (names, positional):
        if set(order) == set(arrays):
            return order
    raise UsageError(
        f"calibration arrays {_listed(arrays)} do not match the model's inputs {_listed(names)}; "
        "save one array for each input under its name"
    )


def _listed(names: Mapping[str, object] | Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "(none)"


def _check_array(array: np.ndarray, wanted: ModelInput) -> None:
    says = f"calibration array for input {wanted.name!r}"
    if not _fits(array.shape[1:], wanted.shape) or array.ndim == 0:
        raise UsageError(
            f"{says} has shape {array.shape}; expected {wanted.wants}{_hint(array.shape, wanted)}"
        )
    if array.dtype.name != wanted.dtype:
        raise UsageError(
            f"{says} is {array.dtype.name}; expected {wanted.dtype}: save array.astype('{wanted.dtype}')"
        )
    if len(array) == 0:
        raise UsageError(f"{says} has no samples (N is 0); give at least one")
    if array.dtype.kind in "fc" and not np.isfinite(array).all():
        is_finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
        sample = int(np.flatnonzero(~is_finite)[0])
        raise UsageError(
            f"{says} has a NaN or an infinity in sample {sample}; remove or replace it"
        )


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    """Return whether a shape is the one that is wanted, in which None stands for any size."""
    if len(shape) != len(wanted):
        return False
    return all(want in (None, has) for want, has in zip(wanted, shape, strict=True))


def _hint(shape: tuple[int, ...], wanted: ModelInput) -> str:
    if shape == wanted.shape:
        return ": the leading sample axis is missing, save array[None]"
    if wanted.shape[:1] == (1,) and shape[1:] == wanted.shape[1:]:
        return ": each sample keeps the model's batch axis, save array[:, None]"
    return ", one sample for each step of the leading axis N"
