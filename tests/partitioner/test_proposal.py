"""A proposal keeps what the stock partitioner put into each tag, and is empty if that partitioner fails."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import delegates, lower, lower_safely, quantize, tosa
from prepared import prepared
from small import Built

from safe_arm import verify
from safe_arm._compat.extraction import tag_of
from safe_arm._compat.release_1_4 import STATES_ARE_CONSTANTS
from safe_arm._compat.upstream import CompileSpec, DelegationSpec, PartitionResult
from safe_arm.core.errors import DemotionWarning
from safe_arm.core.island import call_functions, op_name
from safe_arm.partitioner.plan import Plan
from safe_arm.partitioner.proposal import propose, question


def two_delegates(m, x):
    """A Bessel function is on the CPU."""
    return torch.sigmoid(x) + torch.sigmoid(x).i0()


def told(spec):
    """Which tag a spec says that it was made for."""
    return [each.value.decode() for each in spec.compile_specs if each.key == "buffers"]


def test_what_stock_adds_for_one_tag_ships_with_that_tag(monkeypatch):
    def partition(self, program):
        result = stock(self, program)
        for tag, spec in result.partition_tags.items():
            more = CompileSpec("buffers", tag.encode())
            result.partition_tags[tag] = DelegationSpec(spec.backend_id, [*spec.compile_specs, more])
        return result

    stock = TOSAPartitioner.partition
    monkeypatch.setattr(TOSAPartitioner, "partition", partition)
    net = prepared(two_delegates)
    result = net.partitioner(verify=False).partition(net.program())
    # Stock numbers delegates from the end, ours in the order in which they run.
    assert {tag: told(spec) for tag, spec in result.partition_tags.items()} == {"tag0": ["tag1"], "tag1": ["tag0"]}
    tags = map(tag_of, call_functions(result.tagged_exported_program.graph_module))
    assert list(dict.fromkeys(filter(None, tags))) == ["tag0", "tag1"]


def tagging_around(outside):
    """Stands for a stock partitioner that tags everything but one kind of operator with one tag."""

    def partition(program):
        for node in call_functions(program.graph_module):
            if op_name(node) != outside:
                node.meta["delegation_tag"] = "whole"
        return PartitionResult(program, {"whole": DelegationSpec("backend", [CompileSpec("buffers", b"whole")])})

    return partition


def test_the_parts_of_a_split_delegate_keep_its_spec():
    program = prepared(two_delegates).program()
    proposal = propose(tagging_around("aten::i0"), program, Plan())
    assert len(proposal.specs) > 1
    assert {*proposal.specs} == {tag for node in call_functions(program.graph_module) if (tag := tag_of(node))}
    assert [told(spec) for spec in proposal.specs.values()] == [["whole"]] * len(proposal.specs)
    assert proposal.result.partition_tags == proposal.specs


def test_a_partitioner_that_fails_proposes_nothing_and_says_so():
    def fails(program):
        tagging_around("")(program)
        raise RuntimeError("lost its way")

    program = prepared(two_delegates).program()
    with pytest.warns(DemotionWarning, match="NOTHING IS DELEGATED: .*lost its way"):
        proposal = propose(fails, program, Plan())
    assert proposal.specs == {}
    assert {tag_of(node) for node in call_functions(program.graph_module)} == {None}
    assert proposal.plan.refused == {*call_functions(program.graph_module)}


def test_checks_see_the_plan_while_stock_is_asked_and_not_after():
    seen = []

    def looks(program):
        seen.append(question().plan)
        return PartitionResult(program, {})

    plan = Plan()
    propose(looks, prepared(two_delegates).program(), plan)
    assert seen[0] is plan
    assert question().plan is not plan


def summed(m, x):
    m.state = m.state * 0.75 + x
    return m.state + m.shift


def net():
    """A state that its own reader does not compute, and a constant."""
    return Built(summed, state=torch.zeros(1, 4), shift=torch.full((1, 4), 0.25))


STEPS = [(torch.full((1, 4), value),) for value in (1.0, -0.5, 0.75)]


@pytest.mark.skipif(not STATES_ARE_CONSTANTS, reason="from 1.5 on stock knows all states (E3)")
def test_stock_takes_a_state_for_a_constant():
    with pytest.raises(Exception, match="does not point to a buffer that exists"):
        lower(net(), STEPS[0], TOSAPartitioner(tosa("TOSA-1.0+FP")))


def test_a_state_stays_outside_and_a_constant_goes_with_its_reader():
    manager, partitioner = lower_safely(net(), STEPS[0], tosa("TOSA-1.0+FP"))
    assert len(delegates(manager)) == 1
    assert not partitioner.report.demoted
    program = manager.exported_program()
    assert [*program.graph_signature.buffers_to_mutate.values()] == ["state"]
    assert [*program.graph_signature.inputs_to_buffers.values()] == ["state"]
    assert [gap.worst for gap in verify(manager, STEPS, reference=torch.export.export(net(), STEPS[0])).outputs] == [0]


def test_an_index_of_two_delegates_stays_with_the_program():
    """ExecuTorch raises on it: it copies a constant that two delegates read, but puts no copy into a list."""
    rows = torch.tensor([3, 1, 0, 2])

    def picked_twice(m, x):
        picked = x[m.rows].sigmoid()
        return picked.i0().sigmoid()[m.rows]

    net, inputs = Built(picked_twice, rows=rows), (torch.randn(4, 8),)
    graph_module = quantize(net, inputs, tosa("TOSA-1.0+INT"))
    with pytest.raises(RuntimeError, match="constant data node"):
        lower(graph_module, inputs, TOSAPartitioner(tosa("TOSA-1.0+INT")))
    _, partitioner = lower_safely(graph_module, inputs, tosa("TOSA-1.0+INT"), verify=True)
    assert [each.op for each in partitioner.report.fallbacks] == ["aten::i0"]
    assert [each.exact for each in partitioner.report.verifications] == [True, True]
