"""A join that takes a value twice still does once a permute moved over it."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.exir.dialects._ops import ops as exir_ops
from folding import edge_of
from lowering import (
    RELEASE,
    check_stocks_bytes,
    codes_apart,
    computed_by,
    corrected,
    delegates,
    lower,
    lower_exactly,
    lower_safely,
    quantize,
    tosa,
)
from small import Built, Lambda

from safe_arm import SafeArmPartitioner
from safe_arm.acceleration.switch import SWITCH
from safe_arm.passes.manager import CORRECTIONS
from safe_arm.passes.propagate_view_copy_permute_up import PropagateViewCopyPermuteUpPass

FLOAT = "TOSA-1.0+FP"
GRAY = (torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(0)) - 0.5,)
#: The permute may be the model's own, as here, or a convolution's.
JOINS = {
    "twice": lambda m, x: (torch.cat((x, x), 1).permute(0, 2, 3, 1) * 2).sum(3, keepdim=True),
    "first and last": lambda m, x: (torch.cat((x, x.abs(), x), 1).permute(0, 2, 3, 1) * 1.1).mean(3),
    "output": lambda m, x: torch.cat((x.abs(), x, x), 1).permute(0, 2, 3, 1) * 2,
    "moved twice": lambda m, x: torch.cat((x, x), 1).permute(0, 2, 3, 1).flatten(1) * 0.5,
}


@pytest.mark.parametrize("name", ["twice", "first and last"])
def test_stock_loses_a_part(name):
    net = Lambda(JOINS[name])
    (given,) = computed_by(TOSAPartitioner(tosa(FLOAT)), net, GRAY)
    assert (given - net(*GRAY)).abs().max() > 0.05


@pytest.mark.parametrize("accelerated", ["0", "1"])
@pytest.mark.parametrize("name", JOINS)
def test_ours_keeps_every_part(name, accelerated, monkeypatch):
    monkeypatch.setenv(SWITCH, accelerated)
    net = Lambda(JOINS[name])
    (given,) = corrected("whole-joins", "S44", net, GRAY, tosa(FLOAT), verify=None)
    torch.testing.assert_close(given, net(*GRAY), rtol=0, atol=1e-6)


def test_a_gray_image_for_a_coloured_one(profile):
    graph_module = quantize(Lambda(lambda m, x: m.conv(torch.cat((x, x, x, x), 1))), GRAY, tosa(profile))
    partitioner = SafeArmPartitioner(tosa(profile), verify=True)
    assert codes_apart(lower(graph_module, GRAY, partitioner), graph_module, GRAY) == 0
    assert all(each.verified for each in partitioner.report.verifications)
    assert "whole-joins" in {each.correction for each in partitioner.report.applied}


#: Rules of a number and a value behind a permute, and of one before.
NUMBERS = {
    "number first": lambda m, x: (0.5 - x).permute(0, 2, 3, 1) * 1.5,
    "behind it": lambda m, x: 1 - x.permute(0, 2, 3, 1),
    "of a convolution": lambda m, x: 1 - m.conv(x.expand(2, 4, 5, 7)),
}
COMPARED = Lambda(lambda m, x: m.conv(x.expand(2, 4, 5, 7)) < 0.2)


@pytest.mark.skipif(RELEASE != (1, 5), reason="measured on 1.5.1")
def test_stock_moves_a_permute_to_the_number():
    (given,) = computed_by(TOSAPartitioner(tosa(FLOAT)), COMPARED, GRAY)
    assert not torch.equal(given, COMPARED(*GRAY))


def test_a_view_behind_a_table_of_one_value_moves_to_the_value():
    """The table has 256 numbers, and what is looked up in it is one."""
    gate = Built(lambda m, x: x.sigmoid() @ m.weight, weight=torch.ones(1, 8))
    inputs = (torch.full((1, 1), 0.5),)
    lower_exactly(quantize(gate, inputs, tosa("TOSA-1.0+INT")), tosa("TOSA-1.0+INT"), inputs)


@pytest.mark.parametrize("name", NUMBERS)
def test_ours_moves_a_permute_to_the_value(name, profile):
    graph_module = quantize(Lambda(NUMBERS[name]), GRAY, tosa(profile))
    lower_exactly(graph_module, tosa(profile), GRAY)


@pytest.mark.skipif(RELEASE != (1, 5), reason="1.4 does not move it")
def test_a_comparison_with_a_number_keeps_its_layout():
    (given,) = corrected("whole-joins", "S18", COMPARED, GRAY, tosa(FLOAT), verify=True)
    assert torch.equal(given, COMPARED(*GRAY))


def test_a_number_behind_the_value_is_left_to_stock():
    check_stocks_bytes(Lambda(lambda m, x: (x - 0.5).permute(0, 2, 3, 1) * 1.5), GRAY, tosa(FLOAT))


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda m, x: torch.cat((x, x.abs()), 1).permute(0, 2, 3, 1).sum(3), id="parts that are different"),
        pytest.param(lambda m, x: torch.cat((x, x), 1).sum(1), id="a join that no permute moves over"),
    ],
)
def test_near_misses_stay_stock_s(function):
    check_stocks_bytes(Lambda(function), GRAY, tosa(FLOAT))
    assert lower_safely(Lambda(function), GRAY, tosa(FLOAT))[1].report.applied == ()


@pytest.mark.skipif(RELEASE != (1, 5), reason="1.4 does not move it")
def test_a_pass_of_no_correction_moves_a_permute_to_the_value_and_notes_nothing():
    number, colours = torch.full((1, 1, 1, 1), 0.5), (GRAY[0].expand(2, 3, 5, 7),)
    graph_module = edge_of(lambda x: (number - x).permute(0, 2, 3, 1) * 1.5, inputs=colours).graph_module
    graph = PropagateViewCopyPermuteUpPass()(graph_module).graph_module.graph
    (permute,) = graph.find_nodes(op="call_function", target=exir_ops.edge.aten.permute_copy.default)
    assert permute.args[0].name == "inputs_0"


def test_a_graph_with_a_join_that_was_moved_over_is_said_to_be_changed():
    of_images = edge_of(lambda x: torch.cat((x, x), 1).permute(0, 2, 3, 1), inputs=GRAY).graph_module
    assert PropagateViewCopyPermuteUpPass()(of_images).modified


def test_twice_equals_once():
    net, without = Lambda(JOINS["twice"]), tuple(each for each in CORRECTIONS if each.name != "whole-joins")
    first, second = (delegates(lower(net, GRAY, SafeArmPartitioner(tosa(FLOAT)))) for _ in "ab")
    assert first == second
    assert first != delegates(lower(net, GRAY, SafeArmPartitioner(tosa(FLOAT), corrections=without, verify=False)))
