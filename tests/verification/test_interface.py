"""A delegate's TOSA graph takes and gives what its caller does, or the delegate is refused (D1)."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import codes_apart, delegates, edge_program, lower, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner
from safe_arm._compat.tested_releases import executorch_version, parse
from safe_arm.core.errors import DemotionWarning, InvariantError
from safe_arm.verification.delegate import user_inputs
from safe_arm.verification.interface import fits
from safe_arm.verification.taps import main_block

FLOATS = ("TOSA-1.0+INT+FP", "TOSA-1.0+FP")


def graph_of(forward, profile):
    net = Lambda(forward)
    return quantize(net, image(), tosa(profile)) if "INT" in profile else torch.export.export(net, image()).module()


def filled(m, x):
    return torch.cat((torch.empty(1, 4, 8, 8).fill_(0.25), x), 1)


since_1_5 = pytest.mark.skipif(parse(executorch_version()) < (1, 5), reason="D1 is a bug of 1.5")


@since_1_5
@pytest.mark.parametrize("profile", FLOATS)
def test_stock_calls_a_delegate_with_an_input_that_its_graph_lost(profile):
    manager = lower(graph_of(filled, profile), image(), TOSAPartitioner(tosa(profile)))
    calls = [n for n in manager.exported_program().graph.nodes if n.name.startswith("executorch_call_delegate")]
    given = [len(call.args) - 1 for call in calls]
    taken = [main_block(flatbuffer).InputsLength() for flatbuffer in delegates(manager)]
    assert [a - b for a, b in zip(given, taken, strict=True)] == [1]


@since_1_5
@pytest.mark.parametrize("profile", FLOATS)
def test_ours_refuses_it_with_that_reason_and_is_right(profile):
    graph_module, partitioner = graph_of(filled, profile), SafeArmPartitioner(tosa(profile))
    with pytest.warns(DemotionWarning, match="interface-kept"):
        manager = lower(graph_module, image(), partitioner)
    (demoted,) = partitioner.report.demoted
    assert demoted.op == "aten::full_like"
    assert "invariant 'interface-kept' broken by the serialisation" in demoted.reason
    assert "the TOSA graph has 1 inputs and the call has 2" in demoted.reason
    assert partitioner.report.delegates, "the cat stays"
    assert codes_apart(manager, graph_module, image(), image(1)) == 0


def conv():
    """The interface of a delegate that is one quantised convolution, and its TOSA graph."""
    spec = tosa("TOSA-1.0+INT")
    graph_module = quantize(Lambda(lambda m, x: m.conv(x)), image(), spec)
    manager = lower(graph_module, image(), SafeArmPartitioner(spec))
    (call,) = (n for n in manager.exported_program().graph.nodes if n.name.startswith("executorch_call_delegate"))
    lowered = getattr(manager.exported_program().graph_module, call.args[0].target)
    return lowered.original_module, delegates(manager)[0]


def test_what_fits_is_quiet():
    program, flatbuffer = conv()
    fits(program)(flatbuffer)


@pytest.mark.parametrize("side", ["input", "output"])
def test_another_dtype_is_told(side):
    program, flatbuffer = conv()
    nodes = {"input": user_inputs(program)[0], "output": program.graph.output_node().args[0][0]}
    nodes[side].meta["val"] = nodes[side].meta["val"].float()
    with pytest.raises(InvariantError, match=rf"{side} \w+ is INT8 in the TOSA graph and torch\.float32 in the call"):
        fits(program)(flatbuffer)


@pytest.mark.parametrize("side", ["input", "output"])
def test_another_number_is_told(side):
    program, _ = conv()
    spec = tosa("TOSA-1.0+INT")
    nets = {
        "input": Lambda(lambda m, x, y: m.conv(x) + y),
        "output": Lambda(lambda m, x: (m.conv(x), torch.sigmoid(x))),
    }
    inputs = (*image(), *image(1)) if side == "input" else image()
    manager = lower(quantize(nets[side], inputs, spec), inputs, SafeArmPartitioner(spec))
    with pytest.raises(InvariantError, match=f"the TOSA graph has 2 {side}s and the call has 1"):
        fits(program)(delegates(manager)[0])


def test_a_misfit_is_an_invariant_that_broke():
    _, flatbuffer = conv()
    float_program = edge_program(Lambda(lambda m, x: m.conv(x)), image())
    with pytest.raises(InvariantError, match=r"INT8 in the TOSA graph and torch\.float32 in the call") as caught:
        fits(float_program)(flatbuffer)
    assert (caught.value.invariant, caught.value.broken_by) == ("interface-kept", "the serialisation")
