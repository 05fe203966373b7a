"""A cumulative sum of codes is delegated whatever gives them."""

from functools import partial

import pytest
from failure import said
from folding import changed_once
from lowering import WIDE, by_stock, check_stocks_bytes, edge_program, lower_exactly, min_max, quantize, tosa
from small import Lambda, image, marked, qdq

from safe_arm._compat.upstream import FoldAndAnnotateQParamsPass
from safe_arm.passes.decompose_cumsum import DecomposeCumsumPass
from safe_arm.passes.manager import CORRECTIONS

INT, INT16 = "TOSA-1.0+INT", "TOSA-1.0+INT+int16"
SUMS = {
    "tanh": (lambda m, x: m.conv(x.tanh()).cumsum(1), INT, min_max()),
    "two": (lambda m, x: x.sigmoid().cumsum(2).sigmoid().cumsum(1), INT, min_max()),
    "of 16 bits": (lambda m, x: m.conv(x).cumsum(1), INT16, min_max(WIDE)),
}


def quantised(name):
    rule, profile, config = SUMS[name]
    return quantize(Lambda(rule), image(), tosa(profile), config=config), tosa(profile)


@pytest.mark.parametrize("name", ["tanh", "of 16 bits"])
def test_stock_raises(name):
    graph_module, spec = quantised(name)
    with pytest.raises(Exception, match="ProgramGraphPassAdapter") as caught:
        by_stock(graph_module, image(), spec)
    assert "only supports torch.int8 weights" in said(caught.value)


@pytest.mark.parametrize("name", SUMS)
def test_ours_is_one_exact_delegate(name):
    graph_module, spec = quantised(name)
    report = lower_exactly(graph_module, spec, image(), image(1)).report
    assert len(report.delegates) == 1
    assert {each.correction for each in report.applied} >= {"summed-codes"}


def test_a_sum_of_what_is_no_table_gets_stock_s_bytes():
    graph_module = quantize(Lambda(lambda m, x: m.conv(x).cumsum(1)), image(), tosa(INT), config=min_max())
    chosen = tuple(c for c in CORRECTIONS if c.name == "summed-codes")
    check_stocks_bytes(graph_module, image(), tosa(INT), corrections=chosen)


def test_twice_equals_once():
    net = Lambda(lambda m, x: qdq(qdq(qdq(x, 0.1, 3).tanh(), 0.1, 3).cumsum(1), 0.1, 3))
    program = edge_program(marked(net, image()), image())
    graph_module = FoldAndAnnotateQParamsPass(program)(program.graph_module).graph_module
    assert "cumsum" not in changed_once(partial(DecomposeCumsumPass, program), graph_module)
