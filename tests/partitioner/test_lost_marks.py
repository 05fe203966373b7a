"""A quantised graph within another module loses its marks when it is exported, and is delegated all the same."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.exir import to_edge_transform_and_lower
from lowering import PROFILES, RELEASE, codes_apart, delegates, lower, lower_program, min_max, quantize, tosa
from small import DQ, Built, Lambda, Q, image

from safe_arm import SafeArmPartitioner
from safe_arm.core.island import is_marked_quantized, op_name
from safe_arm.partitioner.lost_marks import marked_again
from safe_arm.verification.reference_model import run_lowered

INPUTS = image()
CODES = (0.01, 3, -128, 127, torch.int8)


def results(m, x):
    """A quantised graph behind its preprocessing, and with a float result behind it."""
    found = [each(x * 2 - 1) for each in m.quantised]
    return torch.softmax(found[-1], 1), found


def wrapped(*graph_modules):
    return Built(results, quantised=torch.nn.ModuleList(graph_modules))


def divided(m, x):
    a, b = torch.split(m.conv(x).relu(), [1, 3], 1)
    y = torch.cat((torch.sigmoid(a), b), 1)
    return m.conv_b(torch.nn.functional.pad(y, (1, 0))).flatten(1)


def names(graph, chosen):
    return [op_name(node) or str(node.target) for node in graph.nodes if chosen(node)]


def quantised(profile, rule=divided):
    return quantize(Lambda(rule), INPUTS, tosa(profile), config=min_max())


def test_stock_delegates_nothing_of_it_in_integers():
    how = {"quantizer_class": TOSAQuantizer, "config": min_max()}
    graph_module = quantize(Lambda(divided), INPUTS, tosa(PROFILES[0]), **how)
    assert not delegates(lower(wrapped(graph_module), INPUTS, TOSAPartitioner(tosa(PROFILES[0]))))


def test_export_loses_the_marks_and_ours_finds_all_of_them():
    """The marks are those that the quantiser set, and none beside them."""
    graph_module = quantised(PROFILES[0])
    alone = torch.export.export(graph_module, INPUTS)
    program = torch.export.export(wrapped(graph_module), INPUTS)
    assert not names(program.graph, is_marked_quantized)
    found = marked_again(program)
    assert names(found.graph, is_marked_quantized) == names(alone.graph, is_marked_quantized)
    assert marked_again(found) is found
    assert not names(program.graph, is_marked_quantized)


@pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 hands no program on before it decomposes it")
def test_ours_delegates_two_of_them_exactly(profile):
    net = wrapped(quantised(profile), quantised(profile, lambda m, x: m.conv(x).flatten(1)))
    program = torch.export.export(net, INPUTS)
    partitioner = SafeArmPartitioner(tosa(profile))
    manager = to_edge_transform_and_lower(program, partitioner=[partitioner])
    assert not names(program.graph, is_marked_quantized)
    layers = [verdict for verdict in partitioner.report.verdicts if "convolution" in verdict.op]
    assert len(layers) == 3
    assert all(verdict.delegate for verdict in layers)
    _, *given = run_lowered(manager.exported_program(), INPUTS)
    _, wanted = net(*INPUTS)
    assert all(torch.equal(one, other) for one, other in zip(given, wanted, strict=True))


@pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 hands no program on before it decomposes it")
def test_a_module_of_torch_s_whose_input_is_called_input_is_delegated():
    layers = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3), torch.nn.ReLU(), torch.nn.Flatten()).eval()
    graph_module = quantize(layers, image(), tosa(PROFILES[0]), config=min_max())
    program = torch.export.export(graph_module, image())
    for node in program.graph.nodes:
        node.meta.pop("custom", None)
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
    manager = lower_program(program, partitioner)
    assert (partitioner.report.fallbacks, codes_apart(manager, graph_module, image(1))) == ((), 0)


def test_a_program_that_has_marks_is_left_alone():
    """An operator without one was left float by the quantiser."""
    program = torch.export.export(quantised(PROFILES[0]), INPUTS)
    marked = [node for node in program.graph.nodes if is_marked_quantized(node)]
    left = marked[0]
    left.meta["custom"] = {}
    assert marked_again(program) is program
    assert not is_marked_quantized(left)


def test_a_float_program_and_a_mean_get_none():
    handmade = Lambda(lambda m, x: Q(DQ(Q(x, *CODES), *CODES).mean((2, 3)), *CODES))
    for model in (Lambda(divided), handmade):
        program = torch.export.export(model, INPUTS)
        assert marked_again(program) is program


def test_what_our_quantiser_left_float_gets_none():
    """No operator of the graph has a mark, but it has notes."""
    program = torch.export.export(
        quantised(PROFILES[0], lambda m, x: torch.ops.aten.norm.Scalar(x, float("inf"))), INPUTS
    )
    assert not names(program.graph, is_marked_quantized)
    assert marked_again(program) is program
