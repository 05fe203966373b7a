"""A setting for an operator by its name holds for all that the operator is decomposed into."""

import pytest
import torch
from executorch.backends.arm.quantizer import VgfQuantizer, get_symmetric_quantization_config
from executorch.backends.arm.vgf import VgfCompileSpec
from graph_changes import quantised_whole
from lowering import WIDE, min_max
from small import Lambda

from safe_arm import SafeVgfQuantizer
from safe_arm.quantizer.graphs.named_operators import exported_names


def attention(m, x):
    return torch.softmax(m.linear(x) @ x.transpose(-2, -1), -1) @ x


def quantised(quantizer_class, function, settings):
    inputs = (torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(0)),)
    quantizer = quantizer_class(VgfCompileSpec("TOSA-1.0+INT+FP+int16"))
    quantizer.set_global(min_max())
    for name, config in settings.items():
        quantizer.set_node_name(name, config)
    return quantised_whole(quantizer, Lambda(function), [inputs])


def widths(graph_module):
    """By operator, in graph order, the type that its result is quantised to."""
    found = []
    for node in graph_module.graph.nodes:
        quantise = [u for u in node.users if "quantize_per_tensor" in u.name and "dequantize" not in u.name]
        if node.op == "call_function" and "quantize" not in node.name:
            found.append((node.name, str(quantise[0].args[-1]) if quantise else "float"))
    return found


def wide(graph_module):
    return [name for name, dtype in widths(graph_module) if dtype == "torch.int16"]


SIXTEEN = min_max(WIDE)
#: What of a softmax has 16 bits. The maximum shares the quantisation of what it is taken from, the sum has 32 bits, and
#: what is called ``reciprocal`` is the rough one, of 8.
SOFTMAX = {"sub", "exp", "reciprocal_default", "mul"}


def test_stock_forgets_an_operator_that_is_decomposed():
    assert wide(quantised(VgfQuantizer, attention, {"softmax": SIXTEEN})) == []


def test_ours_takes_all_of_it_and_twice_is_once():
    once = quantised(SafeVgfQuantizer, attention, {"softmax": SIXTEEN})
    twice = quantised(SafeVgfQuantizer, attention, {"softmax": SIXTEEN, ("softmax",): SIXTEEN})
    assert set(wide(once)) >= SOFTMAX
    assert not {"linear", "bmm", "bmm_1"} & set(wide(once))
    assert once.code == twice.code


@pytest.mark.parametrize(("name", "product"), [("matmul", "bmm"), ("matmul_1", "bmm_1")])
def test_a_product_whose_parts_have_no_name_of_their_own(name, product):
    graph_module = quantised(SafeVgfQuantizer, attention, {name: SIXTEEN})
    assert product in wide(graph_module)
    assert {n.name for n in graph_module.graph.nodes if exported_names(n) == (name,)} >= {product}
    assert not {"bmm", "bmm_1"} - {product} & set(wide(graph_module))


def test_the_second_product_is_still_the_second_if_the_first_stays_float():
    """Stock's names move up: left whole, the first product is ``matmul``, and the second becomes ``bmm``."""
    graph_module = quantised(SafeVgfQuantizer, attention, {"matmul": None, "matmul_1": SIXTEEN})
    assert "matmul" in dict(widths(graph_module))
    assert "bmm" in wide(graph_module)


def test_several_names_are_matched_as_one_pattern():
    per_tensor = min_max(get_symmetric_quantization_config(is_per_channel=False))
    settings = {("linear", "relu"): per_tensor}
    graph_module = quantised(SafeVgfQuantizer, lambda m, x: torch.relu(m.linear(x)), settings)
    assert widths(graph_module) == [("linear", "float"), ("relu", "torch.int8")]
    assert "per_channel" not in graph_module.code


def norm(m, x):
    y = m.linear(x)
    return y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6)


@pytest.mark.parametrize("name", ["mul", "mean", "add", "rsqrt", "mul_1"])
def test_a_norm_that_is_written_anew_keeps_the_name_of_each_operator(name):
    """It took the names of its root and its last product: a setting for the others did nothing, and said nothing."""
    changed = wide(quantised(SafeVgfQuantizer, norm, {name: SIXTEEN}))
    assert changed
    assert "linear" not in changed


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("einsum", lambda m, x: torch.relu(torch.einsum("bij,bkj->bik", m.linear(x), x))),
        ("layer_norm", lambda m, x: torch.relu(torch.nn.functional.layer_norm(m.linear(x), (8,)))),
        ("group_norm", lambda m, x: torch.relu(torch.group_norm(m.linear(x), 2))),
    ],
)
def test_no_part_of_an_operator_is_left_without_its_name(name, function):
    """Stock's passes give some parts of these no mark at all; ours wrote the copy in front of an einsum."""
    changed = quantised(SafeVgfQuantizer, function, {name: SIXTEEN})
    named = {node.name for node in changed.graph.nodes if name in exported_names(node)}
    computed = {each for each, _ in widths(changed)}
    assert computed - named == {"linear", "relu"}


def test_what_is_left_out_gives_its_name_to_nothing():
    def without_dropout(m, x):
        return norm(m, torch.dropout(x, 0.5, train=False))

    assert wide(quantised(SafeVgfQuantizer, without_dropout, {"dropout": SIXTEEN})) == []


@pytest.mark.parametrize("settings", [{}, {"linear": SIXTEEN}, {"linear": None}, {"no_such": SIXTEEN}])
def test_what_is_not_decomposed_is_as_in_stock(settings):
    classes = SafeVgfQuantizer, VgfQuantizer
    ours, stock = (quantised(each, lambda m, x: torch.sigmoid(m.linear(x)) + x, settings) for each in classes)
    assert ours.code == stock.code
    x = torch.ones(1, 8, 8)
    assert torch.equal(ours(x), stock(x))


def test_a_name_that_the_passes_gave_does_as_in_stock():
    ours, stock = (quantised(each, attention, {"exp": SIXTEEN}) for each in (SafeVgfQuantizer, VgfQuantizer))
    assert wide(ours) == wide(stock) == ["exp"]
