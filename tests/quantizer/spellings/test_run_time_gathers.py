"""A gather at run time is a selection of rows."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, RELEASE, lower_exactly, lower_safely, min_max, quantize, tosa
from ratios import for_ethos_u
from rewriting import Rewriting
from small import Lambda
from spelled import refused
from stubborn import calibrated, exported

from safe_arm.core.island import op_name
from safe_arm.quantizer.spellings.run_time_gathers import gather_at_run_time

X = torch.rand(2, 3, 8, generator=torch.Generator().manual_seed(1)) * 2 - 1
OTHER = torch.rand(2, 3, 8, generator=torch.Generator().manual_seed(2)) * 2 - 1
PLACES = torch.randint(0, 2, (2, 2, 8), generator=torch.Generator().manual_seed(3), dtype=torch.int32)
BELOW = (-X, PLACES - 1, OTHER)


def gathered(dim, keepdim=True):
    return lambda m, x, k, y: (y + 1).gather(dim, x.argmax(dim, keepdim=keepdim))


FROM_START = {
    "the last dimension": gathered(-1),
    "the second dimension": gathered(1),
    "the first dimension": gathered(0),
    "a minimum's index": lambda m, x, k, y: (y + 1).gather(2, x.argmin(2, keepdim=True)),
    "an index that was narrowed": lambda m, x, k, y: (y + 1).gather(2, x.argmax(2, keepdim=True).int()),
    "fewer lines than there are": lambda m, x, k, y: (y + 1).gather(2, x[:1, :1].argmax(2, keepdim=True)),
    "a line": lambda m, x, k, y: (y + 1).flatten().gather(0, x.flatten().argmax(0, keepdim=True)),
    "four dimensions": lambda m, x, k, y: (y + 1)[None].gather(2, x[None].argmax(2, keepdim=True)),
    "rows": lambda m, x, k, y: (y + 1).gather(0, x[..., :1].argmax(0, keepdim=True).expand(-1, -1, 8)),
    "repeated in part": lambda m, x, k, y: (y + 1).gather(0, x[:, :1].argmax(0, keepdim=True).expand(-1, 3, -1)),
    "rows in part": lambda m, x, k, y: (y + 1).gather(0, x[..., :1].argmax(0, keepdim=True).expand(-1, -1, 5)),
    "repeated twice": lambda m, x, k, y: (y + 1).gather(1, x[:1, :, :1].argmax(1, keepdim=True).expand(2, -1, 8)),
    "repeated along the dimension": lambda m, x, k, y: (y + 1).gather(
        1, x[..., :1].argmax(1, keepdim=True).expand(-1, 2, 8)
    ),
    "a remainder": lambda m, x, k, y: (y + 1).gather(2, x.argmax(2, keepdim=True) % 8),
    "along the last dimension": lambda m, x, k, y: torch.take_along_dim(y + 1, x.argmax(2, keepdim=True), -1),
    "along all": lambda m, x, k, y: torch.take_along_dim(y + 1, x.argmax(2)),
    "along one of broadcast lines": lambda m, x, k, y: torch.take_along_dim(y[:1] + 1, x[:, :1].argmax(2, True), 2),
}
FROM_END = {
    "places along a dimension": lambda m, x, k, y: torch.take_along_dim(y + 1, k.long(), 1),
    "constants along a dimension": lambda m, x, k, y: torch.take_along_dim(y + 1, torch.tensor([[[-1, 0, 2]]]), 2),
}
PLAIN = {
    "places of the first dimension": lambda m, x, k, y: (y + 1).gather(0, k.abs()),
    "places that were widened": lambda m, x, k, y: (y + 1).gather(0, k.abs().long()),
}


class TestRunTimeGathers(Rewriting):
    step = staticmethod(gather_at_run_time)
    inputs = (X, PLACES, OTHER)
    also = (BELOW,)
    written: ClassVar = {**FROM_START, **FROM_END, **PLAIN}
    gone = ("aten.gather", "aten.take_along_dim", "aten.remainder")
    kept: ClassVar = {
        "one that stock lowers": lambda m, x, k, y: y.gather(1, k.abs()),
        "of two dimensions": lambda m, x, k, y: y[0].gather(-1, k[0, :1].abs().expand(3, -1)),
        "a constant": lambda m, x, k, y: y.gather(2, torch.zeros(2, 3, 1, dtype=torch.int64)),
        "places of 64 bits": lambda m, x, k, y: y.gather(2, x.sort(2)[1]),
        "a remainder that wraps": lambda m, x, k, y: y.gather(2, x.argmax(2, keepdim=True) % 7),
        "integers": lambda m, x, k, y: k.gather(2, x[:, :2].argmax(2, keepdim=True)),
    }


ARGMAX = pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 delegates no argmax")
LOWERED = [
    *(pytest.param(rule, id=name, marks=ARGMAX) for name, rule in FROM_START.items()),
    *(pytest.param(rule, id=name) for name, rule in {**PLAIN, **FROM_END}.items()),
]


@pytest.mark.parametrize("rule", LOWERED)
def test_ours_is_one_exact_delegate_whatever_the_index(rule):
    inputs = TestRunTimeGathers.inputs
    graph_module = quantize(Lambda(rule), inputs, tosa(PROFILES[0]), config=min_max())
    lower_exactly(graph_module, tosa(PROFILES[0]), inputs, BELOW)


@ARGMAX
@pytest.mark.parametrize("name", ["the last dimension", "rows", "along the last dimension"])
def test_stock_leaves_a_gather_on_the_cpu(name):
    inputs = TestRunTimeGathers.inputs
    graph_module = quantize(Lambda(FROM_START[name]), inputs, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer)
    assert "aten::gather" in refused(graph_module, inputs)


def test_a_repeated_index_selects_rows():
    model = exported(Lambda(FROM_START["rows"]), TestRunTimeGathers.inputs)
    gather_at_run_time(model)
    selections = [node for node in model.graph.nodes if op_name(node) == "aten::index_select"]
    assert [node.meta["val"].shape for node in selections] == [(3, 8)]


def test_an_ethos_u55_has_no_gather_and_gets_no_arithmetic_for_one():
    spec = EthosUCompileSpec("ethos-u55-128")
    inputs = TestRunTimeGathers.inputs
    model = exported(Lambda(FROM_START["the last dimension"]), inputs)
    graph_module = calibrated(model, for_ethos_u("ethos-u55-128"), [inputs])
    _, partitioner = lower_safely(graph_module, inputs, spec, verify=False)
    assert "aten::gather" in [each.op for each in partitioner.report.fallbacks]
    assert "aten::index_select" not in map(op_name, graph_module.graph.nodes)
