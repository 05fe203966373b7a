"""Every delegate is lowered once in a session, on copies, whatever its tensors are."""

import faults
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import PROFILES, edge_program, tosa
from prepared import prepared
from small import Lambda, image

from safe_arm.core.errors import ToolError
from safe_arm.core.failure import Failure
from safe_arm.core.island import call_functions, op_name
from safe_arm.partitioner.plan import Plan
from safe_arm.partitioner.proposal import propose
from safe_arm.partitioner.trials import Trials

TWO_DELEGATES = Lambda(lambda m, x: torch.tanh(torch.sigmoid(x).i0()))
ONE_DELEGATE = Lambda(lambda m, x: torch.tanh(m.conv(x)))


def proposed(net):
    return propose(TOSAPartitioner(tosa(PROFILES[0])).partition, prepared(net).program(), Plan())


def test_a_delegate_is_lowered_once_a_session_however_often_it_is_proposed():
    proposal = proposed(TWO_DELEGATES)
    trials, others = Trials(600.0), Trials(600.0)
    first, again, other = (each.attempt(proposal.program, proposal.specs) for each in (trials, trials, others))
    assert trials.count == others.count == len(first.lowered) == 2
    assert (first.failures, trials.synthetic) == ({}, False)
    for tag, (_, lowered) in first.lowered.items():
        assert again.lowered[tag][1] is lowered
        assert other.lowered[tag][1] is not lowered
        assert other.lowered[tag][1].flatbuffer == lowered.flatbuffer


def test_a_failure_is_a_value_under_its_tag_and_the_other_delegate_lowers():
    proposal, trials = proposed(TWO_DELEGATES), Trials(600.0)
    with faults.pass_raising_for("aten::tanh"):
        attempt = trials.attempt(proposal.program, proposal.specs)
    assert len(attempt.failures) == len(attempt.lowered) == 1
    (failure,) = attempt.failures.values()
    assert any("tanh" in name for name in failure.suspects)


def test_a_part_lowers_alone():
    proposal, trials = proposed(ONE_DELEGATE), Trials(600.0)
    (spec,) = proposal.specs.values()
    nodes = call_functions(proposal.program.graph_module)
    with faults.pass_raising_for("aten::tanh"):
        assert trials.failure_of_part(proposal.program, spec, nodes) is not None
        convolution = [node for node in nodes if op_name(node) == "aten::convolution"]
        assert trials.failure_of_part(proposal.program, spec, convolution) is None


def test_a_tensor_computed_with_gradients_on_is_copied():
    net = Lambda(lambda m, x: m.conv(x) * m.factor)
    net.factor = torch.nn.Parameter(torch.rand(4, 1, 1)) * 2
    program = edge_program(net, image())
    (held,) = (each for each in (program.constants, program.state_dict) if any("factor" in name for name in each))
    (name,) = (name for name in held if "factor" in name)
    held[name] = net.factor
    assert not net.factor.is_leaf, "copy.deepcopy refuses it"
    before = net.factor.detach().clone()
    proposal, trials = propose(TOSAPartitioner(tosa("TOSA-1.0+FP")).partition, program, Plan()), Trials(600.0)
    attempt = trials.attempt(proposal.program, proposal.specs)
    assert [failure.details for failure in attempt.failures.values()] == []
    assert len(attempt.lowered) == 1
    assert held[name] is net.factor
    assert torch.equal(net.factor, before)


def test_the_compiler_is_tried_once_a_session_and_only_when_a_tool_failed(monkeypatch):
    proposal, session = proposed(ONE_DELEGATE), Trials(600.0, target="ethos-u55-128")
    by_pass, by_tool = Failure("a pass", "raised"), Failure("vela", "crashed", tool=ToolError("vela", "crashed"))
    failures = iter([by_pass, by_tool, by_tool])
    targets, counts = [], []
    monkeypatch.setattr("safe_arm.partitioner.trials.lower", lambda *_, **__: next(failures))
    monkeypatch.setattr("safe_arm.partitioner.trials.require_running_compiler", targets.append)
    for _ in range(3):
        session.attempt(proposal.program, proposal.specs)
        counts.append(len(targets))
    assert (counts, targets) == ([0, 1, 1], ["ethos-u55-128"])
