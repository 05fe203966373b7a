"""Rolls and columns of a float program are slices, which a delegate takes; stock leaves index arithmetic on the CPU."""

import pytest
import torch
import torch.nn.functional as F
from lowering import RELEASE, lower, lower_safely, tosa
from small import Built, image

import safe_arm
from safe_arm._compat.upstream import TOSAPartitioner
from safe_arm.core.island import call_functions, op_name
from safe_arm.partitioner.float_moves import with_moves_spelled_out

pytestmark = pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 asks no partitioner before the decomposition")
FLOAT = "TOSA-1.0+FP"
MOVES = {
    "roll": lambda x: torch.roll(x, (3, -2), (2, 3)),
    "flat roll": lambda x: torch.roll(x, 5),
    "columns": lambda x: F.unfold(x, (3, 2), dilation=(2, 1), padding=(1, 0), stride=(2, 3)),
    "columns of one": lambda x: F.unfold(x[0], 2),
}
KEPT = {
    "integers": lambda x: torch.roll(x.to(torch.int32), 1, 2),
    "many places": lambda x: F.unfold(x, 9, padding=4),
}
by_move = pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)


def net_of(move):
    """A move between two layers, for which the delegate would be cut."""
    return Built(lambda m, x: move(m.conv(x)) * 2, conv=torch.nn.Conv2d(4, 4, 3, padding=1)).eval()


def exported(move):
    return torch.export.export(net_of(move), image())


def targets(program):
    return [node.target for node in program.graph.nodes]


def test_stock_leaves_the_indices_of_a_roll_on_the_cpu():
    manager = lower(net_of(MOVES["roll"]), image(), TOSAPartitioner(tosa(FLOAT)))
    names = {op_name(node) for node in call_functions(manager.exported_program().graph_module)}
    assert {"aten::arange", "aten::fmod", "aten::index_select"} <= names


@pytest.mark.parametrize(("name", "profile"), [("roll", FLOAT), ("columns", "TOSA-1.0+INT+FP")])
def test_ours_has_one_delegate_that_computes_the_net(name, profile):
    net = net_of(MOVES[name])
    manager, partitioner = lower_safely(net, image(), tosa(profile), verify=True)
    assert partitioner.report.fallbacks == ()
    assert len(partitioner.report.verifications) == 1
    reference = torch.export.export(net, image()).module()
    assert safe_arm.verify(manager, [image()], reference=reference).outputs[0].worst < 1e-6  # float32


@by_move
def test_every_value_is_where_it_was_and_the_program_is_left_as_it_is(move):
    program = exported(move)
    before = str(program.graph)
    spelled = with_moves_spelled_out(program)
    assert str(program.graph) == before
    assert torch.equal(spelled.module()(*image()), program.module()(*image()))
    assert not {torch.ops.aten.roll.default, torch.ops.aten.im2col.default} & set(targets(spelled))


@pytest.mark.parametrize("move", KEPT.values(), ids=KEPT)
def test_a_near_miss_is_left_alone(move):
    program = exported(move)
    assert targets(with_moves_spelled_out(program)) == targets(program)


@by_move
def test_twice_equals_once(move):
    spelled = with_moves_spelled_out(exported(move))
    assert with_moves_spelled_out(spelled) is spelled


def test_a_branch_of_a_condition_is_spelled_too():
    def either(x):
        return torch.cond(x.sum() > 0, lambda x: torch.roll(x, 1, 2), lambda x: x * 2, (x,))

    program = exported(either)
    spelled = with_moves_spelled_out(program)
    assert torch.equal(spelled.module()(*image()), program.module()(*image()))
    branches = [module for name, module in spelled.graph_module.named_modules() if name.endswith("_graph_0")]
    assert len(branches) == 2
    assert not any(torch.ops.aten.roll.default in targets(branch) for branch in branches)
