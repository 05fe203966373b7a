"""A scatter at run time is a choice for each place."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, RELEASE, min_max, quantize, tosa
from ratios import for_ethos_u
from rewriting import Rewriting
from small import Lambda
from spelled import check_whole, refused
from stubborn import calibrated, exported

from safe_arm.quantizer.spellings.run_time_scatters import scatter_at_run_time

X = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(1))
PLACES = torch.randint(0, 5, (2, 3, 6), generator=torch.Generator().manual_seed(2), dtype=torch.int32)
SOURCE = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(3))

WRITTEN = {
    "values at integers": lambda m, x, k, y: torch.zeros_like(x).scatter(1, k.long(), y),
    "values beside others": lambda m, x, k, y: x.scatter(1, k.long(), y),
    "a number": lambda m, x, k, y: torch.zeros_like(x).scatter(1, k.long(), 0.5) * x,
    "in place": lambda m, x, k, y: (x + 1).scatter_(1, k.long(), y),
    "a sum": lambda m, x, k, y: x.scatter_add(1, k.long(), y),
    "the place of a maximum": lambda m, x, k, y: (x * 0).scatter(-1, x.argmax(-1, keepdim=True), x[..., :1]),
}


class TestRunTimeScatters(Rewriting):
    step = staticmethod(scatter_at_run_time)
    inputs = (X, PLACES, SOURCE)
    also = ((-X, PLACES.flip(1), SOURCE * 2), (X, PLACES * 0, SOURCE))
    written: ClassVar = WRITTEN
    gone = ("scatter",)
    kept: ClassVar = {
        "constant places": lambda m, x, k, y: x.scatter(1, torch.zeros(2, 3, 6, dtype=torch.int64), y),
        "fewer rows": lambda m, x, k, y: x.scatter(1, k[:1].long(), y),
        "a larger source": lambda m, x, k, y: x.scatter(1, k[:, :2].long(), y),
        "places of 64 bits": lambda m, x, k, y: x.scatter(1, x[:, :3].sort(1)[1], y),
        "integers": lambda m, x, k, y: k.scatter(1, k[:, :2].long(), 1),
        "many places": lambda m, x, k, y: x.repeat(1, 2, 1).scatter(1, k.repeat(1, 3, 1).long(), y.repeat(1, 3, 1)),
        "a product": lambda m, x, k, y: x.scatter_reduce(1, k.long(), y, "prod"),
    }


def gated(m, x, k, y):
    """The two largest of each row by their softmax, and zeros."""
    values, places = x.topk(2, 1)
    return torch.zeros_like(x).scatter(1, places, values.softmax(1))


DELEGATED = {"a gate": gated, "a sum": WRITTEN["a sum"], "values beside others": WRITTEN["values beside others"]}


@pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 delegates no argmax")
@pytest.mark.parametrize("rule", DELEGATED.values(), ids=DELEGATED)
def test_ours_is_one_exact_delegate(rule, profile):
    check_whole(rule, (X, PLACES, SOURCE), profile)


@pytest.mark.parametrize("name", ["values at integers", "a number", "a sum"])
def test_stock_leaves_it_on_the_cpu(name):
    how = {"quantizer_class": TOSAQuantizer, "config": min_max()}
    inputs = (X, PLACES, SOURCE)
    graph_module = quantize(Lambda(WRITTEN[name]), inputs, tosa(PROFILES[0]), **how)
    assert any("scatter" in operator for operator in refused(graph_module, inputs))


def test_an_ethos_u55_compares_no_integers_and_keeps_the_operator():
    inputs = (X, PLACES, SOURCE)
    model = exported(Lambda(WRITTEN["values at integers"]), inputs)
    graph_module = calibrated(model, for_ethos_u("ethos-u55-128"), [inputs])
    assert "aten.scatter" in graph_module.code
