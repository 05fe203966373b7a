"""``check --calibrate random``: a first look without data, and nothing but that."""

import json
from functools import partial
from io import StringIO

import numpy as np
import torch
from command_line import invoke

from safe_arm.cli.calibration import ModelInput, match
from safe_arm.cli.progress import Steps
from safe_arm.cli.random_samples import random_arrays

check = partial(invoke, "check", "--target=tosa", "--calibrate=random")


def test_a_first_look(files):
    first, again = (check(files.model, "--json", "--no-verify") for _ in range(2))
    document = json.loads(first.stdout)
    assert document["random_calibration"] is True
    assert document["comparison"]["propagate"]["operators_delegated"] == 4
    assert "Note: calibrated on 8 random samples, " in first.stderr
    assert "the accuracy and the differences in codes mean nothing" in first.stderr
    assert document == json.loads(again.stdout), "the samples are always the same"


class Looked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(2, 4)

    def forward(self, index, pixels, mask):
        return self.table(index) + pixels.to(torch.float32) * mask


def test_integers_and_dynamic_sizes(save, tmp_path):
    batch = torch.export.Dim("batch", min=2, max=8)
    index, pixels = torch.zeros(3, dtype=torch.int64), torch.zeros(3, 4, dtype=torch.uint8)
    inputs = (index, pixels, pixels.bool())
    model = save(Looked(), inputs, tmp_path / "net.pt2", dynamic_shapes=({0: batch},) * 3)
    result = check(model, "--no-verify")
    assert "Note: input 'index' is int64: random integers from 0 to 1\n" in result.stderr
    assert "Note: input 'pixels' is uint8: random integers from 0 to 255\n" in result.stderr
    assert "Note: input 'mask' is bool: random integers from 0 to 1\n" in result.stderr
    assert "Note: input 'pixels' is dynamic; it is fixed to the samples' shape (3, 4)\n" in result.stderr


def test_every_float_is_of_the_inputs_dtype():
    inputs = [ModelInput(dtype, (1, 2), dtype, (1, 2)) for dtype in ("float16", "float32", "float64")]
    arrays = match(random_arrays(inputs, Steps(StringIO())), inputs)
    assert [array.dtype.name for array in arrays] == [each.dtype for each in inputs]
    assert all(array.shape == (8, 1, 2) and np.isfinite(array).all() for array in arrays)


def test_a_dtype_without_samples(save, tmp_path):
    model = save(torch.nn.ReLU(), (torch.rand(1, 4, dtype=torch.bfloat16),), tmp_path / "net.pt2")
    result = check(model, "--no-verify", status=2)
    assert result.stderr.endswith(
        "Error: input 'input' is bfloat16, which NumPy does not have; no sample can be given\n"
    )
