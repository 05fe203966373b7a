"""A state that takes what another was is written, on a device too (known issue E4)."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from lowering import EDGE, delegates, tosa
from stepping import called

from safe_arm import SafeArmPartitioner
from safe_arm._compat.own_states import with_own_states

STEPS = [(torch.full((1, 4), value),) for value in (1.0, 2.0, 3.0, 4.0)]


class Delayed(torch.nn.Module):
    """Two calls ago, of an input that a rule makes the first state of."""

    def __init__(self, seen=lambda state: state):
        super().__init__()
        self.seen = seen
        self.register_buffer("last", torch.zeros(1, 4))
        self.register_buffer("before", torch.zeros(1, 4))

    def forward(self, x):
        self.before.copy_(self.seen(self.last))
        self.last.copy_(x + x)
        return x + self.before


def exported(seen=lambda state: state):
    return torch.export.export(Delayed(seen), STEPS[0])


def lowered(program, spec):
    return to_edge_transform_and_lower(program, partitioner=[SafeArmPartitioner(tosa(spec))], compile_config=EDGE)


def wanted():
    net = Delayed()
    return [net(*step) for step in STEPS]


def test_stock_dies_of_it_beside_ours():
    lowered(exported(), "TOSA-1.0+FP")
    with pytest.raises(Exception, match="is not in the correct order"):
        to_edge_transform_and_lower(exported(), partitioner=[TOSAPartitioner(tosa("TOSA-1.0+FP"))], compile_config=EDGE)


@pytest.mark.parametrize("seen", [lambda state: state, lambda state: state.view(4).view(1, 4)])
def test_ours_delegates_and_writes_both(seen):
    manager = lowered(exported(seen), "TOSA-1.0+FP")
    assert len(delegates(manager)) == 1
    program = manager.exported_program()
    for step, expected in zip(STEPS, wanted(), strict=True):
        (ours,) = called(program, step)
        assert torch.equal(ours, expected)
    nodes = (
        manager.to_executorch()
        .exported_program()
        .graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    )
    assert sorted(node.args[0].name for node in nodes) == ["b_before", "b_last"]


@pytest.mark.parametrize("seen", [lambda state: state, lambda state: state.view(4).view(1, 4)])
def test_the_runtime_carries_both_on(seen):
    manager = lowered(exported(seen), "TOSA-1.0+INT")  # Floats, which this target leaves to the runtime's kernels.
    assert not delegates(manager)
    program = Runtime.get().load_program(manager.to_executorch().buffer)
    method = program.load_method("forward")
    for step, expected in zip(STEPS, wanted(), strict=True):
        assert torch.equal(method.execute(list(step))[0], expected)


@pytest.mark.parametrize("seen", [torch.clone, torch.neg, lambda state: state.view(1, 4)])
def test_a_value_of_its_own_is_left_alone(seen):
    program = exported(seen)
    assert with_own_states(program) is program


def test_the_given_program_stays_as_it_is_and_twice_equals_once():
    program = exported()
    before = str(program.graph)
    once = with_own_states(program)
    assert str(program.graph) == before
    assert str(once.graph) != before
    assert with_own_states(once) is once
