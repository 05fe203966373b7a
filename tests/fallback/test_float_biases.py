"""What is refused for the accelerator, XNNPACK takes whole: the program loads, runs and computes the same codes."""

from functools import cache

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.backends.arm.quantizer import get_symmetric_a16w8_quantization_config
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.runtime import Runtime
from lowering import edge_program, executed, lower, output_steps, quantize, targets, tosa
from small import Built, Nothing

from safe_arm import SafeArmPartitioner, seams
from safe_arm._compat.upstream import TOSAPartitioner
from safe_arm.fallback.float_biases import with_float_biases

PROFILE = "TOSA-1.0+INT+FP"


def joined_island(layer):
    """A conv-like layer, a ReLU, and a neighbour with negative values in the same quantisation domain."""
    torch.manual_seed(0)
    return Built(lambda m, x, y: torch.cat((F.relu(m.layer(x)), y), 1), layer=layer()).eval()


ISLANDS = {
    "conv2d": (lambda: nn.Conv2d(4, 8, 3, padding=1), (1, 4, 8, 8), (1, 8, 8, 8)),
    "depthwise": (lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8), (1, 8, 8, 8), (1, 8, 8, 8)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 8, 3, padding=1), (1, 4, 8, 8), (1, 8, 8, 8)),
    "conv1d": (lambda: nn.Conv1d(4, 8, 3, padding=1), (1, 4, 8), (1, 8, 8)),
    "linear": (lambda: nn.Linear(4, 8), (2, 4), (2, 8)),
}


@cache
def island(name):
    layer, *shapes = ISLANDS[name]
    torch.manual_seed(1)
    inputs = tuple(torch.randn(shape) for shape in shapes)
    return quantize(joined_island(layer), inputs, tosa(PROFILE)), inputs


def codes_apart(manager, graph_module, inputs):
    ((output,),) = executed(manager, inputs)
    apart = (output - graph_module(*inputs)).abs().max() / output_steps(graph_module)[0]
    return round(apart.item())


def computing(manager):
    """The operators that went into no delegate."""
    return [t for t in targets(manager.exported_program().graph_module) if "call_delegate" not in t]


def test_stock_exports_a_program_that_does_not_load():
    seams.install()  # stock stays stock beside us
    graph_module, inputs = island("conv2d")
    manager = lower(graph_module, inputs, TOSAPartitioner(tosa(PROFILE), [Nothing()]), XnnpackPartitioner())
    assert "convolution" in computing(manager)
    with pytest.raises(RuntimeError, match="Failed to load method forward"):
        executed(manager, inputs)


@pytest.mark.parametrize("name", ISLANDS)
def test_xnnpack_takes_the_island_and_computes_its_codes(name):
    graph_module, inputs = island(name)
    manager = lower(graph_module, inputs, SafeArmPartitioner(tosa(PROFILE), [Nothing()]), XnnpackPartitioner())
    assert computing(manager) == []
    assert codes_apart(manager, graph_module, inputs) == 0


@pytest.mark.parametrize("options", [{}, {"keep_provenance": True}], ids=["lean", "with provenance"])
def test_an_island_refused_among_delegates_is_xnnpacks(options):
    graph_module, inputs = island("conv2d")
    manager = lower(graph_module, inputs, SafeArmPartitioner(tosa(PROFILE), **options), XnnpackPartitioner())
    lowered = [m for n, m in manager.exported_program().graph_module.named_children() if n.startswith("lowered_")]
    held = {m.backend_id: targets(m.original_module.graph_module) for m in lowered}
    assert "convolution" in held["XnnpackBackend"]
    assert "relu" in held["XnnpackBackend"]
    assert "cat" in held["TOSABackend"]
    for module in lowered:
        if module.backend_id == "XnnpackBackend":
            buffer = module.buffer()
            Runtime.get().load_program(buffer).load_method("forward")


def test_the_portable_kernels_compute_the_same_codes():
    graph_module, inputs = island("conv2d")
    manager = lower(graph_module, inputs, SafeArmPartitioner(tosa(PROFILE), [Nothing()]))
    assert codes_apart(manager, graph_module, inputs) == 0


edge = cache(edge_program)


def test_a_bias_is_its_codes_times_its_scale_and_the_program_keeps_its_tensors():
    program = edge(*island("conv2d"))
    per_channel = [n for n in program.graph.nodes if "dequantize_per_channel" in str(n.target)]
    (dequantize,) = [n for n in per_channel if n.args[0].meta["val"].dtype is torch.int32]
    buffers = program.graph_signature.inputs_to_buffers
    codes, scale = (program.state_dict[buffers[n.name]] for n in dequantize.args[:2])
    before = dict(program.state_dict)
    result = with_float_biases(program)
    result._validate()
    conv = next(n for n in result.graph.nodes if "convolution" in str(n.target))
    bias = result.state_dict[result.graph_signature.inputs_to_parameters[conv.args[2].name]]
    assert torch.equal(bias, codes * scale)
    assert before.keys() == program.state_dict.keys()
    assert not any(t.dtype is torch.int32 for t in result.state_dict.values())


def test_twice_equals_once():
    result = with_float_biases(edge(*island("conv2d")))
    assert with_float_biases(result) is result


@pytest.mark.parametrize(
    ("bias", "profile", "config"),
    [(True, "TOSA-1.0+INT+int16", get_symmetric_a16w8_quantization_config), (False, PROFILE, lambda: None)],
    ids=["a bias beside int16 activations", "weights"],
)
def test_other_codes_are_left(bias, profile, config):
    net = joined_island(lambda: nn.Conv2d(4, 8, 3, padding=1, bias=bias))
    inputs = (torch.randn(1, 4, 8, 8), torch.randn(1, 8, 8, 8))
    program = edge(quantize(net, inputs, tosa(profile), config=config()), inputs)
    assert with_float_biases(program) is program
