"""Giving an operator's output a domain of its own where stock shares that of its input."""

import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated
from small import Lambda, image
from stubborn import quantizer_of
from torchao.quantization.pt2e.quantizer import QuantizationSpec, SharedQuantizationSpec

from safe_arm.quantizer.domains.own_domains import give_own_domain, shared_spec


def test_what_shared_the_domain_through_the_operator_shares_the_new_one():
    net = Lambda(lambda m, x: torch.sigmoid(m.conv(x).clamp(-1, 1).flatten(2)).clamp(0, 0.5))
    model = annotated(net, quantizer_of(TOSAQuantizer), image())
    clamp, flat, sigmoid, other = (n for n in model.graph.nodes if n.name in ("clamp", "flatten", "sigmoid", "clamp_1"))
    spec = shared_spec(clamp)
    assert isinstance(spec, QuantizationSpec)
    give_own_domain(model, clamp, spec)
    assert clamp.meta["quantization_annotation"].output_qspec is spec
    assert shared_spec(clamp) is None
    annotation = flat.meta["quantization_annotation"]
    for shared in (annotation.output_qspec, annotation.input_qspec_map[clamp]):
        assert isinstance(shared, SharedQuantizationSpec)
        assert shared.edge_or_node is clamp
    assert other.meta["quantization_annotation"].output_qspec.edge_or_node == (sigmoid, other)


def test_an_operator_that_shares_nothing_has_no_shared_domain():
    net = Lambda(lambda m, x: torch.sigmoid(m.conv(x)) + 1)
    model = annotated(net, quantizer_of(TOSAQuantizer), image())
    assert [shared_spec(node) for node in model.graph.nodes if node.op == "call_function"] == [None] * 3
