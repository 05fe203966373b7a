"""Products that are summed, and a variance's differences, are rounded once, and the delegate computes them exactly."""

import pytest
import torch
import torch.nn.functional as F
from graph_changes import annotated, annotates_no_more, wide
from lowering import RELEASE
from ratios import for_ethos_u, ours_exactly, quantised, ratios
from small import Lambda, Q, together
from stubborn import quantizer_of

from safe_arm._compat.annotations import plain_spec, spec_at
from safe_arm.quantizer.precision.exact_products import keep_products_exact

TOKENS = [torch.randn(2, 2, 64, 8, generator=torch.Generator().manual_seed(seed)).unbind() for seed in range(16)]
#: By name, a function of two tensors, and how many dB below rounded borders ours may be.
REDUCED = {
    "variance": (lambda m, x, y: x.var(1) + 0 * y.amax(1), 1.0),
    "scalar product": (lambda m, x, y: (x * y).sum(1), 0.0),
    "cosine similarity": (lambda m, x, y: F.cosine_similarity(x, y, dim=1), 1.0),
    "layer norm": (lambda m, x, y: F.layer_norm(x, (8,)) + 0 * y, 1.5),
}
KEPT = {
    "a product that is not summed": lambda m, x, y: torch.relu(x * y),
    "a sum that could overflow": lambda m, x, y: (x.expand(700, *x.shape) * y).sum((0, 2)),
    "a sum that is not of products": lambda m, x, y: torch.relu(x).sum(-1) + y.sum(-1),
}


@pytest.mark.parametrize("name", REDUCED)
def test_stock_loses_what_it_rounds_and_ours_does_not(name):
    rule, bound = REDUCED[name]
    borders, stock, ours = ratios(rule, TOKENS)
    assert ours > stock + 1.5
    assert ours > borders - bound


@pytest.mark.parametrize("name", REDUCED)
def test_the_one_delegate_is_exact(name, profile):
    ours_exactly(REDUCED[name][0], TOKENS, profile)


@pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 delegates no argmax")
@pytest.mark.parametrize("index", [torch.argmax, torch.argmin])
def test_an_index_of_the_largest_sum_is_delegated(index):
    """TOSA has no argmax of 32 bits, so that the sum is rounded to 8 for it."""
    ours_exactly(lambda m, x, y: (index((x * y).sum(-1), -1).int(), (x - y).square().sum(-1)), TOKENS)


def test_all_differences_of_a_value_have_the_steps_whose_squares_fit():
    def rule(m, x, y):
        return F.layer_norm(x.flatten(1), (512,)) + 0 * y.flatten(1)

    model = annotated(Lambda(rule), quantizer_of(), TOKENS[0])
    specs = [node.meta["quantization_annotation"].output_qspec for node in model.graph.nodes if "sub" in node.name]
    steps = [spec.derive_qparams_fn.args[0].keywords["steps"] for spec in specs]
    assert steps == [8, 8]  # 512 squares of 255 * 8 + 1 fit 32 bits.


#: By an operator, a rule, an Ethos-U and how many values of 32 bits of the operator there are on it.
WIDE = {
    "a difference on a U55": ("sub", REDUCED["layer norm"][0], "ethos-u55-128", 2),
    "a difference that is squared": ("sub", REDUCED["layer norm"][0], "ethos-u85-256", 1),
    "a product on a U55": ("mul", lambda m, x, y: (x * y).sum(1), "ethos-u55-128", 1),
    "a product that would be transposed": ("mul", lambda m, x, y: (x * y).sum(1), "ethos-u85-256", 0),
    "a product that would not": ("mul", lambda m, x, y: (x * y).sum(-1), "ethos-u85-256", 1),
    "a square": ("mul", lambda m, x, y: (x * x).sum(1) + 0 * y.amax(1), "ethos-u85-256", 1),
}


@pytest.mark.parametrize(("operator", "rule", "target", "number"), WIDE.values(), ids=WIDE)
def test_on_ethos_u85_what_would_be_transposed_in_32_bits_is_not_wide(operator, rule, target, number):
    names = wide(annotated(Lambda(rule), for_ethos_u(target), TOKENS[0]))
    assert len([name for name in names if name.startswith(operator)]) == number


def test_a_norm_of_a_product_subtracts_the_mean_exactly_too():
    def rule(m, x, y):
        return F.layer_norm(x * y, (8,))

    model = annotated(Lambda(rule), quantizer_of(), TOKENS[0])
    assert wide(model, "sub") == ["sub", "sub_1"]


def test_near_misses_keep_8_bits():
    assert wide(annotated(Lambda(together(KEPT)), quantizer_of(), TOKENS[0])) == []


def test_a_difference_from_anything_but_the_mean_keeps_8_bits_if_it_is_read_besides():
    """The scale of one of two tensors may be too coarse for the other; their squared difference is exact still."""

    def rule(m, x, y):
        apart = x - y
        return (apart * apart).sum(-1), apart.relu()

    model = annotated(Lambda(rule), quantizer_of(), TOKENS[0])
    assert wide(model, "sub") == []
    assert len(wide(model)) == 2


def test_what_takes_no_32_bits_reads_8_of_an_exact_sum():
    model = annotated(Lambda(lambda m, x, y: (x * y).sum(-1).sigmoid()), quantizer_of(), TOKENS[0])
    (sigmoid,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.sigmoid.default)
    (total,) = sigmoid.args
    assert spec_at(total).dtype == torch.int32
    assert plain_spec(spec_at((total, sigmoid))).dtype == torch.int8


def test_twice_equals_once():
    model = annotated(Lambda(REDUCED["cosine similarity"][0]), quantizer_of(), TOKENS[0])
    assert wide(model)
    assert annotates_no_more(keep_products_exact, model)


def test_a_mean_is_rounded_to_the_finest_part_of_a_step_whose_squares_fit():
    def rule(m, x, y):
        rows = x.flatten(1)
        apart = rows - rows.mean(1, keepdim=True)
        return (apart * apart).sum(1) + 0 * y.amax((1, 2))

    graph = quantised(rule, quantizer_of(), TOKENS).graph
    scales = {node.args[0].name: node.args[1] for node in graph.find_nodes(op="call_function", target=Q)}
    assert scales["x"] / scales["sub"] == pytest.approx(8)  # 512 squares of 255 * 8 + 1 fit, of 9 not.
