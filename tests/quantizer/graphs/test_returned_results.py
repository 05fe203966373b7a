"""What is written into ``out=`` is returned, and delegated."""

from typing import ClassVar

import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, min_max, quantize, tosa
from rewriting import Rewriting
from small import Lambda
from spelled import check_one_exact, left_on_the_cpu

from safe_arm.quantizer.graphs.returned_results import return_results

INPUTS = (torch.linspace(-1, 1, 24).view(2, 12), torch.linspace(2, -1, 24).view(2, 12))


def greatest(m, x, y):
    """As kornia dilates: each neighbour is compared with the greatest before it."""
    found = x * 1.0
    for shift in (1, 2):
        torch.max(found, y.roll(shift, 1), out=found)
    return found


def read_before(m, x, y):
    found = x * 1.0
    before = found.sum(-1)
    torch.add(found, y, out=found)
    return found.sum(-1) + before


def viewed(m, x, y):
    found = x * 1.0
    view = found[:1]
    torch.add(x, y, out=found)
    return view + found


class TestResults(Rewriting):
    step = staticmethod(return_results)
    inputs = INPUTS
    gone = (".out(",)
    written: ClassVar = {
        "the greatest": greatest,
        "a value that is read before": read_before,
        "an empty tensor": lambda m, x, y: torch.mul(x, y, out=torch.empty_like(x)).relu(),
        "a part of what nothing else reads": lambda m, x, y: torch.maximum(x[0], y[0], out=x.roll(1, 1).select(0, 1)),
        "clamped": lambda m, x, y: torch.clamp(x, -0.5, 0.5, out=torch.empty_like(x)) + y,
    }
    kept: ClassVar = {
        "a view": viewed,
        "a part of an input": lambda m, x, y: torch.maximum(x[0], y[0], out=y.select(0, 1)),
        "an input": lambda m, x, y: torch.add(x, y, out=y),
        "another dtype": lambda m, x, y: torch.add(x, y, out=torch.empty_like(x, dtype=torch.float64)).float(),
        "in place": lambda m, x, y: (x * 1.0).add_(y),
    }


def test_stock_leaves_it_on_the_cpu_and_ours_is_one_exact_delegate():
    spec = tosa(PROFILES[0])
    stock = quantize(Lambda(greatest), INPUTS, spec, quantizer_class=TOSAQuantizer, config=min_max())
    assert left_on_the_cpu(stock, INPUTS)
    check_one_exact(quantize(Lambda(greatest), INPUTS, spec, config=min_max()), INPUTS, spec)
