"""Every operator reads its values in the domain they are in."""

import pytest
import torch
from breaking import broken_by_mutation, broken_in, check_broken, outputs_changed
from lowering import PROFILES, edge_program, quantize, tosa
from mutation_nets import NETS, inputs, quantised
from nets import Row
from small import DQ, Lambda, image, marked, qdq

from safe_arm.passes.invariants.domains_meet import _folded


@pytest.mark.parametrize(
    ("fault", "by", "says"),
    [
        ("output-zero-point", "RewriteConvPass", "and the output qparams are scale"),
        ("one-channel-scale", "RewriteConvPass", "gives its channels scales from"),
        ("channel-scales-swapped", "RewriteConvPass", "gives its channels scales from"),
        ("shift-off-by-one", "RewriteConvPass", "and the output qparams are scale"),
        ("add-scales-swapped", "InsertRescaleInt32Pass", "and aten_add_tensor reads scale"),
        ("mul-without-rescale", "InsertRescaleInt32Pass", "the delegate promises scale"),
        ("requantise-dropped", "InsertRescaleInt32Pass", "and aten_maximum_default reads scale"),
    ],
)
def test_red_for_a_rescale_that_lands_elsewhere(fault, by, says):
    error = broken_by_mutation(fault)
    check_broken(error, "domains-meet", by, says)
    assert "FoldAndAnnotateQParamsPass" in error.before


def test_red_for_outputs_that_change_places():
    net = Lambda(lambda m, x: (m.conv(x), m.conv_b(x)))
    graph_module = quantize(net, image(), tosa(PROFILES[0]))
    with outputs_changed(lambda outputs: outputs[::-1]):
        check_broken(broken_in(graph_module, image()), "domains-meet", "ExirToTosaPass")


@pytest.mark.parametrize(
    ("net", "profile"),
    # Stock dies of a tanh before a linear in INT+FP: the fold leaves them float32, and a later pass rounds codes.
    [(net, profile) for net in NETS for profile in PROFILES if (net, profile) != ("linear", PROFILES[1])],
)
def test_quiet_on_the_nets_of_the_mutation_test(net, profile):
    assert broken_in(quantised(net, profile), inputs(), profile) is None


@pytest.mark.parametrize("kind", ["grouped", "conv1d", "transposed", "linear"])
def test_quiet_on_convolutions_that_are_taken_apart(kind, profile):
    net = Row(kind, "relu", "cat", "default").net()
    assert broken_in(quantize(net, net.inputs(), tosa(profile)), net.inputs(), profile) is None


def test_quiet_on_a_convolution_behind_a_cumsum(profile):
    """Torch sums codes up as int64, and the convolution is traced with those."""
    net = Lambda(lambda m, x: m.conv_b(torch.cumsum(m.conv(x), 1)))
    assert broken_in(quantize(net, image(), tosa(profile)), image(), profile) is None


def test_a_constant_of_an_operator_on_constants_alone_has_no_domain_to_keep():
    moved, added = (torch.zeros(shape, dtype=torch.int8) for shape in ((1, 8, 8, 4), (1, 4, 8, 8)))
    own = (0.1, 0, -128, 127, torch.int8)
    net = Lambda(lambda m, x: qdq(qdq(x, 0.2, 0) + DQ(moved, *own).permute(0, 3, 1, 2) + DQ(added, *own), 0.3, 0))
    program = edge_program(marked(net, image()), image())
    shapes = {node.name: node.meta["val"].shape for node in program.graph.find_nodes(op="placeholder")}
    assert [shapes[name] for name in _folded(program, program.graph_module)] == [moved.shape]
