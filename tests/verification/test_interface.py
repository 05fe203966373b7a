"""A delegate's TOSA graph takes and gives what its caller does, or the delegate is refused (D1)."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import RELEASE, codes_apart, delegates, lower, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner
from safe_arm.core.errors import DemotionWarning, InvariantError
from safe_arm.verification import interface
from safe_arm.verification.delegate import user_inputs
from safe_arm.verification.interface import fits
from safe_arm.verification.taps import computed, main_block, with_outputs

FLOATS = ("TOSA-1.0+INT+FP", "TOSA-1.0+FP")


def graph_of(forward):
    return torch.export.export(Lambda(forward), image()).module()


def filled(m, x):
    return torch.cat((torch.empty(1, 4, 8, 8).fill_(0.25), x), 1)


since_1_5 = pytest.mark.skipif(RELEASE < (1, 5), reason="D1 is a bug of 1.5")


@since_1_5
@pytest.mark.parametrize("profile", FLOATS)
def test_stock_calls_a_delegate_with_an_input_that_its_graph_lost(profile):
    manager = lower(graph_of(filled), image(), TOSAPartitioner(tosa(profile)))
    calls = [n for n in manager.exported_program().graph.nodes if n.name.startswith("executorch_call_delegate")]
    given = [len(call.args) - 1 for call in calls]
    taken = [main_block(flatbuffer).InputsLength() for flatbuffer in delegates(manager)]
    assert [a - b for a, b in zip(given, taken, strict=True)] == [1]


@since_1_5
@pytest.mark.parametrize("profile", FLOATS)
def test_ours_refuses_it_with_that_reason_and_is_right(profile):
    graph_module, partitioner = graph_of(filled), SafeArmPartitioner(tosa(profile))
    with pytest.warns(DemotionWarning, match="interface-kept"):
        manager = lower(graph_module, image(), partitioner)
    (demoted,) = partitioner.report.demoted
    assert demoted.op == "aten::full_like"
    assert "invariant 'interface-kept' broken by the serialisation" in demoted.reason
    assert "the TOSA graph has 1 inputs and the call has 2" in demoted.reason
    assert partitioner.report.delegates, "the cat stays"
    assert codes_apart(manager, graph_module, image(), image(1)) == 0


@pytest.mark.parametrize("side", ["input", "output"])
def test_another_dtype_is_told(side, delegate, monkeypatch):
    fits(delegate.program)(delegate.flatbuffer)
    output = delegate.program.graph.output_node().args[0][0]
    node = user_inputs(delegate.program)[0] if side == "input" else output
    monkeypatch.setitem(node.meta, "val", node.meta["val"].float())
    says = rf"{side} \w+ is INT8 in the TOSA graph and torch\.float32 in the call"
    with pytest.raises(InvariantError, match=says) as caught:
        fits(delegate.program)(delegate.flatbuffer)
    assert (caught.value.invariant, caught.value.broken_by) == ("interface-kept", "the serialisation")


def test_one_more_than_the_call_has_is_blamed_on_the_last():
    nodes = [torch.fx.Graph().placeholder(name) for name in "xyz"]
    ports = [(node, node.name, torch.int8) for node in nodes]
    with pytest.raises(InvariantError, match="z: the TOSA graph has 4 inputs and the call has 3"):
        interface._check("input", ports, [b"x", b"y", b"z", b"more"], {})


@pytest.mark.parametrize("side", ["input", "output"])
def test_another_number_is_told(side, delegate, monkeypatch):
    flatbuffer, says = delegate.flatbuffer, "the TOSA graph has 2 outputs and the call has 1"
    if side == "input":
        says = "the TOSA graph has 1 inputs and the call has 2"
        monkeypatch.setattr(interface, "user_inputs", lambda program: 2 * user_inputs(program))
    else:
        flatbuffer = with_outputs(flatbuffer, list(computed(flatbuffer))[-2:])
    with pytest.raises(InvariantError, match=says):
        fits(delegate.program)(flatbuffer)
