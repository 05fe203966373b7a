"""Giving an operator's output a domain of its own where stock shares that of its input."""

import graph_changes
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from small import Lambda, image
from stubborn import quantizer_of
from torchao.quantization.pt2e.quantizer import QuantizationSpec, SharedQuantizationSpec

from safe_arm.quantizer.own_domains import give_own_domain, shared_spec


def annotated(rule):
    return graph_changes.annotated(Lambda(rule), quantizer_of(TOSAQuantizer), image())


def test_what_shared_the_domain_through_the_operator_shares_the_new_one():
    model = annotated(lambda m, x: m.conv(x).clamp(-1, 1).flatten(2))
    clamp, flat = (node for node in model.graph.nodes if node.name in ("clamp", "flatten"))
    spec = shared_spec(clamp)
    assert isinstance(spec, QuantizationSpec)
    give_own_domain(model, clamp, spec)
    assert clamp.meta["quantization_annotation"].output_qspec is spec
    assert shared_spec(clamp) is None
    annotation = flat.meta["quantization_annotation"]
    for shared in (annotation.output_qspec, annotation.input_qspec_map[clamp]):
        assert isinstance(shared, SharedQuantizationSpec)
        assert shared.edge_or_node is clamp


def test_an_operator_that_shares_nothing_has_no_shared_domain():
    model = annotated(lambda m, x: torch.sigmoid(m.conv(x)) + 1)
    assert [shared_spec(node) for node in model.graph.nodes if node.op == "call_function"] == [None] * 3
