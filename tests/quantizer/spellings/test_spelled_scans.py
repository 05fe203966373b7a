"""Products of all elements so far are written with products of windows."""

from typing import ClassVar

import torch
from ratios import borders_and_ours
from small import together
from spelled import Spelling

SCANS = {
    "of rows": lambda m, x: x.cumprod(-1),
    "of columns": lambda m, x: x.cumprod(1),
    "what light is left": lambda m, x: (1 - torch.sigmoid(x - 3) + 1e-10).cumprod(-1),
    "two elements": lambda m, x: x[..., :2].cumprod(-1),
    "no power of two": lambda m, x: x[..., :7].cumprod(-1),
}
DRAWS = [torch.Generator().manual_seed(seed) for seed in range(4)]
SAMPLES = [(torch.randn(2, 5, 8, generator=draw),) for draw in DRAWS]


class TestScans(Spelling):
    inputs = SAMPLES[0]
    also = SAMPLES[1:]
    written = SCANS
    kept: ClassVar = {
        "one element": lambda m, x: x[..., :1].cumprod(-1),
        "more than are rounded": lambda m, x: x.expand(64, 2, 5, 8).reshape(1, -1).cumprod(-1),
        "a sum": lambda m, x: x.cumsum(-1),
    }
    # The products are taken in another order.
    tolerance: ClassVar = {"rtol": 1e-5, "atol": 1e-6}

    @property
    def proven(self):
        return {"together": together(self.written)}


def test_it_is_as_good_as_its_borders():
    """A product of 8 elements is rounded 3 times, but for the last time in 16 bits."""
    borders, ours = borders_and_ours(SCANS["of rows"], SAMPLES)
    assert ours > borders - 1
