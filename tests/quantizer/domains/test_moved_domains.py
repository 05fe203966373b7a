"""What a float operator only moves keeps its domain."""

from dataclasses import replace

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated, annotates_no_more
from lowering import HISTOGRAM, PROFILES, lower_in_part, quantize, tosa
from small import Lambda
from stubborn import quantizer_of
from torchao.quantization.pt2e.quantizer import SharedQuantizationSpec

from safe_arm import SafeTOSAQuantizer
from safe_arm._compat.annotations import Q_ANNOTATION_KEY
from safe_arm.core.island import QUANTIZE, QParams, op_name
from safe_arm.quantizer.domains.moved_domains import keep_moved_domains

INPUTS = (torch.randn(6, 6, 6, generator=torch.Generator().manual_seed(0)),)
MOVES = {
    "taken": lambda m, x: torch.take(torch.tanh(x), torch.tensor([3, 9, 27])),
    "a diagonal": lambda m, x: torch.tanh(x).diagonal(1, 1, 2),
    "unbound": lambda m, x: torch.unbind_copy(torch.tanh(x), 1)[2],
    "strided": lambda m, x: torch.tanh(x).as_strided((2, 2), (1, 3)),
    "moved twice": lambda m, x: torch.tanh(x).diagonal(0, 1, 2).triu(),
    "moved into a layer": lambda m, x: m.linear(torch.tanh(x).triu().repeat(1, 2, 2)[:, :8, :8]),
}
NEAR = {
    "computed in float": lambda m, x: torch.cumprod(torch.tanh(x), 1),
    "moved by an operator that stock knows": lambda m, x: torch.tanh(x).transpose(1, 2),
    "moved from a float operator": lambda m, x: torch.sigmoid(torch.cumprod(torch.tanh(x), 1).triu()),
    "the place of an extreme": lambda m, x: torch.tanh(x).argmax(1),
}


def domains(rule, quantizer_class):
    quantised = quantize(Lambda(rule), INPUTS, tosa(PROFILES[0]), config=HISTOGRAM, quantizer_class=quantizer_class)
    (tanh,) = quantised.graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default)
    found = [QParams.of(node) for node in quantised.graph.nodes if op_name(node) == QUANTIZE]
    own = QParams.of(next(iter(tanh.users)))
    return own, found[2]


@pytest.mark.parametrize("name", MOVES)
def test_stock_rounds_again_and_ours_keeps_the_domain(name):
    if name != "taken":  # Stock dies of its index.
        own, moved = domains(MOVES[name], TOSAQuantizer)
        assert own != moved
    own, moved = domains(MOVES[name], SafeTOSAQuantizer)
    assert own == moved


def test_both_delegates_are_exact():
    quantised = quantize(Lambda(MOVES["moved into a layer"]), INPUTS, tosa(PROFILES[0]), config=HISTOGRAM)
    lower_in_part(quantised, tosa(PROFILES[0]), INPUTS, verify=True)


@pytest.mark.parametrize("name", [*NEAR, "moved twice"])
def test_the_near_miss_is_left_alone_and_twice_equals_once(name):
    rule, quantizer_class = (NEAR[name], TOSAQuantizer) if name in NEAR else (MOVES[name], SafeTOSAQuantizer)
    model = annotated(Lambda(rule), quantizer_of(quantizer_class, config=HISTOGRAM), INPUTS)
    assert annotates_no_more(keep_moved_domains, model)


def test_it_is_kept_beside_a_value_that_has_the_domain_of_another():
    rule = Lambda(lambda m, x: torch.exp(x) * torch.tanh(x).triu())
    model = annotated(rule, quantizer_of(TOSAQuantizer, config=HISTOGRAM), INPUTS)
    (product,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)
    specs = product.meta[Q_ANNOTATION_KEY].input_qspec_map
    first, moved = specs
    specs[first] = SharedQuantizationSpec(first)
    keep_moved_domains(model)
    assert specs[moved] == SharedQuantizationSpec(moved.args[0])


def test_a_value_of_another_type_keeps_its_own_domain():
    rule = Lambda(lambda m, x: torch.sigmoid(torch.tanh(x).triu()))
    model = annotated(rule, quantizer_of(TOSAQuantizer, config=HISTOGRAM), INPUTS)
    (sigmoid,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.sigmoid.default)
    specs = sigmoid.meta[Q_ANNOTATION_KEY].input_qspec_map
    (moved,) = specs
    specs[moved] = replace(specs[moved], dtype=torch.int16, quant_min=-32767, quant_max=32767)
    assert annotates_no_more(keep_moved_domains, model)
