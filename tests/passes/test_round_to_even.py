"""Rounded real floats are PyTorch's, in the middle between two numbers too."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from folding import computed, edge_of, folded, passed
from lowering import computed_by, corrected, targets, tosa
from small import Lambda, qdq

from safe_arm.passes.round_to_even import RoundToEvenPass

SPEC = "TOSA-1.0+FP"
HALVES = torch.arange(-40, 41) / 8
#: The last but one float before a half, and floats that are whole numbers, odd ones among them.
LARGE = [8388609.0, -8388609.0, 16777217.0, 8388607.5, 1e30, torch.inf, -torch.inf]
EDGES = torch.tensor([0.49999997, -0.49999997, *LARGE])
BOTH = torch.cat((HALVES, EDGES))


def test_stock_makes_odd_numbers_of_halves_and_large_numbers_others_and_ours_is_pytorch_s():
    net = Lambda(lambda m, x: torch.round(x))
    (stock,) = computed_by(TOSAPartitioner(tosa(SPEC)), net, (BOTH,))
    wrong = stock.ne(BOTH.round())
    assert wrong[: len(HALVES)].sum() == 6
    assert wrong[len(HALVES) :].sum() >= 3
    (given,) = corrected("even-rounding", "S42", net, (BOTH,), tosa(SPEC))
    assert given.equal(BOTH.round())


@pytest.mark.parametrize("values", [HALVES.to(torch.float16), HALVES[20]], ids=["narrower floats", "a scalar"])
def test_other_floats_are_rounded_alike(values):
    program = edge_of(torch.round, inputs=(values,))
    graph_module = passed(RoundToEvenPass, program.graph_module)
    assert computed(program, graph_module, values)[0].equal(values.round())
    assert "round" not in targets(graph_module)


def test_near_misses_are_left_alone_and_twice_equals_once():
    """Near misses are the round of codes, which becomes a table, and those that quantisers will be made of."""
    table = folded(Lambda(lambda m, x: qdq(torch.round(qdq(x, 0.1, 3)), 0.1, 3)), (HALVES,))
    assert targets(passed(RoundToEvenPass, table)) == targets(table)
    before = edge_of(lambda x: torch.round(torch.round(x) * 0.3), inputs=(HALVES,)).graph_module
    assert targets(before).count("round") == 2
    assert "round" not in targets(passed(RoundToEvenPass, before))
