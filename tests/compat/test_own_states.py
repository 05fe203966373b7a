"""States that are written with one value are written each, on a device too (known issue E4)."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.runtime import Runtime
from lowering import delegates, lower_program, tosa
from small import Built
from stepping import called

from safe_arm import SafeArmPartitioner
from safe_arm._compat.own_states import with_own_states

STEPS = [(torch.full((1, 4), value),) for value in (1.0, 2.0, 3.0, 4.0)]


def last(m, x):
    return m.last


def doubled(m, x):
    return x + x


def writing(read="before", **writes):
    """What writes states in an order, and adds one of them to its input."""

    def rule(m, x):
        for name, value in writes.items():
            m.get_buffer(name).copy_(value(m, x))
        return x + m.get_buffer(read)

    return rule


def in_place(m, x):
    m.last.add_(x)
    m.before.copy_(m.last)
    return x + m.before


def both(m, x):
    y = x + x
    m.last.copy_(y)
    m.before.copy_(y)
    return x + m.before + m.last


SHARED = {
    "delayed": writing(before=last, last=doubled),
    "delayed twice": writing("first", first=lambda m, x: m.before, before=last, last=doubled),
    "followed": writing(last=doubled, before=last),
    "followed in place": in_place,
    "both": both,
}
OWN = {
    "delayed views": writing(before=lambda m, x: m.last.view(1, 4), last=doubled),
    "delayed clone": writing(before=lambda m, x: m.last.clone(), last=doubled),
    "one alone": writing("last", last=lambda m, x: x + m.last),
}
by_shared = pytest.mark.parametrize("rule", SHARED.values(), ids=SHARED)
by_own = pytest.mark.parametrize("rule", OWN.values(), ids=OWN)
by_all = pytest.mark.parametrize("rule", (SHARED | OWN).values(), ids=SHARED | OWN)


def net_of(rule):
    return Built(rule, **{name: torch.zeros(1, 4) for name in ("last", "before", "first")})


def exported(rule):
    return torch.export.export(net_of(rule), STEPS[0])


def lowered(rule, spec, partitioner_class=SafeArmPartitioner):
    partitioner = partitioner_class(tosa(spec))
    return lower_program(exported(rule), partitioner)


def right(rule, call):
    net = net_of(rule)
    return all(torch.equal(call(step)[0], net(*step)) for step in STEPS)


def copies(manager):
    graph = manager.to_executorch().exported_program().graph
    return graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)


@by_shared
def test_stock_dies_of_it_beside_ours(rule):
    lowered(rule, "TOSA-1.0+FP")
    with pytest.raises(Exception, match="is not in the correct order"):
        lowered(rule, "TOSA-1.0+FP", TOSAPartitioner)


@by_all
def test_ours_delegates_and_writes_all(rule):
    manager = lowered(rule, "TOSA-1.0+FP")
    assert len(delegates(manager)) == 1
    program = manager.exported_program()
    written = sorted(f"b_{target}" for target in program.graph_signature.buffers_to_mutate.values())
    assert right(rule, lambda step: called(program, step))
    assert sorted(node.args[0].name for node in copies(manager)) == written


@by_all
def test_the_runtime_carries_all_on(rule):
    manager = lowered(rule, "TOSA-1.0+INT")  # Floats, which this target leaves to the runtime's kernels.
    assert not delegates(manager)
    program = Runtime.get().load_program(manager.to_executorch().buffer)
    method = program.load_method("forward")
    assert right(rule, lambda step: method.execute(list(step)))


@by_own
def test_a_value_of_its_own_is_left_alone(rule):
    program = exported(rule)
    assert with_own_states(program) is program


@by_shared
def test_the_given_program_stays_as_it_is_and_twice_equals_once(rule):
    program = exported(rule)
    before = str(program.graph)
    once = with_own_states(program)
    assert str(program.graph) == before
    assert str(once.graph) != before
    assert with_own_states(once) is once
