"""An index at run time, behind dimensions that are taken whole, is a selection of rows."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import (
    PROFILES,
    lower_exactly,
    lower_safely,
    min_max,
    quantize,
    tosa,
)
from ratios import for_ethos_u
from rewriting import Rewriting
from small import Lambda
from spelled import refused
from stubborn import calibrated, exported

from safe_arm.core.island import op_name
from safe_arm.quantizer.spellings.run_time_indices import select_at_run_time

X = torch.rand(6, 6, 4, generator=torch.Generator().manual_seed(1)) * 2 - 1
VALUES = torch.rand(3, 6, 4, generator=torch.Generator().manual_seed(2)) * 2 - 1
FROM_START = (X, torch.tensor([1, 5, 3], dtype=torch.int32), VALUES)
FROM_END = (X, torch.tensor([-1, 0, -3], dtype=torch.int32), VALUES)


BEHIND = {
    "columns": lambda m, x, k, v: (x + 1)[:, k] * 2,
    "a new dimension": lambda m, x, k, v: (x + 1)[None, None, k] * 2,
    "columns of two dimensions": lambda m, x, k, v: (x + 1)[:, k.reshape(1, 3, 1)],
    "two dimensions behind one": lambda m, x, k, v: (x + 1)[None][:, k, k + 1 - 1] * 2,
}


class TestRunTimeIndices(Rewriting):
    step = staticmethod(select_at_run_time)
    inputs = FROM_START
    also = (FROM_END,)
    written = BEHIND
    kept: ClassVar = {
        "a constant": lambda m, x, k, v: x[:, torch.tensor([0, -1])],
        "dimensions apart": lambda m, x, k, v: x[k, :, k.abs() % 4],
        "rows": lambda m, x, k, v: x[k],
        "a mask": lambda m, x, k, v: torch.ops.aten.index.Tensor(x, [None, v[0, :, 0] > 0]),
        "selected": lambda m, x, k, v: x.index_select(0, k),
    }


@pytest.mark.parametrize("rule", BEHIND.values(), ids=BEHIND)
def test_ours_is_one_exact_delegate_whatever_the_index(rule):
    graph_module = quantize(Lambda(rule), FROM_START, tosa(PROFILES[0]), config=min_max())
    lower_exactly(graph_module, tosa(PROFILES[0]), FROM_START, FROM_END)


@pytest.mark.parametrize("rule", BEHIND.values(), ids=BEHIND)
def test_stock_leaves_an_index_behind_whole_dimensions_on_the_cpu(rule):
    graph_module = quantize(Lambda(rule), FROM_START, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer)
    assert refused(graph_module, FROM_START) == ["aten::index"]


def test_an_ethos_u55_has_no_index_and_gets_no_arithmetic_for_one():
    spec = EthosUCompileSpec("ethos-u55-128")
    graph_module = calibrated(
        exported(Lambda(BEHIND["columns"]), FROM_START), for_ethos_u("ethos-u55-128"), [FROM_START]
    )
    _, partitioner = lower_safely(graph_module, FROM_START, spec, verify=False)
    assert [each.op for each in partitioner.report.fallbacks] == ["aten::index"]
    assert "aten::lt" not in map(op_name, graph_module.graph.nodes)
