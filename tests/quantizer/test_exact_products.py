"""Products that are summed, and a variance's differences, are rounded once, and the delegate computes them exactly."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from lowering import PROFILES, lower, tosa
from small import Lambda
from stubborn import exported, quantizer_of
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from benchmarks.quality.ideal import ideal
from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer, SafeTOSAQuantizer
from safe_arm.quantizer.exact_products import keep_products_exact
from safe_arm.quantizer.fidelity import decibel

TOKENS = [torch.randn(2, 2, 64, 8, generator=torch.Generator().manual_seed(seed)).unbind() for seed in range(16)]
#: By name, a function of two tensors, and how many dB below rounded borders ours may be.
REDUCED = {
    "variance": (lambda m, x, y: x.var(1) + 0 * y.amax(1), 1.0),
    "scalar product": (lambda m, x, y: (x * y).sum(1), 0.0),
    "norm": (lambda m, x, y: torch.linalg.vector_norm(x, dim=1) + 0 * y.amax(1), 1.5),
    "cosine similarity": (lambda m, x, y: F.cosine_similarity(x, y, dim=1), 1.0),
}
KEPT = {
    "a product that is not summed": lambda m, x, y: torch.relu(x * y),
    "a sum that could overflow": lambda m, x, y: (x.expand(700, *x.shape) * y).sum((0, 2)),
    "a sum that is not of products": lambda m, x, y: torch.relu(x).sum(-1) + y.sum(-1),
}


def annotated(rule, quantizer):
    return quantizer.annotate(quantizer.transform_for_annotation(exported(Lambda(rule), TOKENS[0])))


def wide(model):
    """The names of the values of 32 bits."""
    names = []
    for node in model.graph.nodes:
        annotation = node.meta.get("quantization_annotation")
        if getattr(getattr(annotation, "output_qspec", None), "dtype", None) == torch.int32:
            names.append(node.name)
    return names


def quantised(rule, quantizer):
    prepared = prepare_pt2e(exported(Lambda(rule), TOKENS[0]), quantizer)
    for sample in TOKENS:
        prepared(*sample)
    return convert_pt2e(prepared)


def ratio(net, rule):
    signal = noise = 0.0
    for sample in TOKENS:
        expected = rule(None, *sample)
        signal += float(expected.square().sum())
        noise += float((net(*sample) - expected).square().sum())
    return decibel(signal, noise)


@pytest.mark.parametrize("name", REDUCED)
def test_stock_loses_what_it_rounds_and_ours_does_not(name):
    rule, bound = REDUCED[name]
    config = get_symmetric_quantization_config()
    borders = ratio(ideal(exported(Lambda(rule), TOKENS[0]), TOKENS), rule)
    stock = ratio(quantised(rule, quantizer_of(TOSAQuantizer, config=config)), rule)
    ours = ratio(quantised(rule, quantizer_of(SafeTOSAQuantizer, config=config)), rule)
    assert ours > stock + 1.5
    assert ours > borders - bound


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", REDUCED)
def test_the_one_delegate_is_exact(name, profile):
    rule, _ = REDUCED[name]
    graph_module = quantised(rule, quantizer_of(SafeTOSAQuantizer, profile))
    partitioner = SafeArmPartitioner(tosa(profile), verify=True)
    lower(graph_module, TOKENS[0], partitioner)
    assert [each.exact for each in partitioner.report.verifications] == [True]
    assert partitioner.report.fallbacks == ()


def layer_norm(m, x, y):
    return F.layer_norm(x, (8,)) + 0 * y


def test_a_layer_norm_does_not_round_its_difference():
    config = get_symmetric_quantization_config()
    borders = ratio(ideal(exported(Lambda(layer_norm), TOKENS[0]), TOKENS), layer_norm)
    stock = ratio(quantised(layer_norm, quantizer_of(TOSAQuantizer, config=config)), layer_norm)
    ours = ratio(quantised(layer_norm, quantizer_of(SafeTOSAQuantizer, config=config)), layer_norm)
    assert ours > stock + 1.5
    assert ours > borders - 1.5


def test_all_differences_of_a_value_have_the_steps_whose_squares_fit():
    def rule(m, x, y):
        return F.layer_norm(x.flatten(1), (512,)) + 0 * y.flatten(1)

    model = annotated(rule, quantizer_of(SafeTOSAQuantizer))
    specs = [node.meta["quantization_annotation"].output_qspec for node in model.graph.nodes if "sub" in node.name]
    assert [spec.derive_qparams_fn.keywords["steps"] for spec in specs] == [4, 4]  # 512 squares of 510 * 4 fit 32 bits.


@pytest.mark.parametrize(("target", "wide_differences"), [("ethos-u55-128", 2), ("ethos-u85-256", 1)])
def test_on_ethos_u85_only_a_difference_that_is_squared_is_wide(target, wide_differences):
    quantizer = SafeEthosUQuantizer(EthosUCompileSpec(target))
    quantizer.set_global(get_symmetric_quantization_config())
    names = wide(annotated(layer_norm, quantizer))
    assert len([name for name in names if name.startswith("sub")]) == wide_differences


@pytest.mark.parametrize("rule", KEPT.values(), ids=KEPT)
def test_the_near_miss_keeps_8_bits(rule):
    assert wide(annotated(rule, quantizer_of(SafeTOSAQuantizer))) == []


def test_a_difference_from_anything_but_the_mean_keeps_8_bits():
    """The scale of one of two tensors may be too coarse for the other; their squared difference is exact still."""

    def rule(m, x, y):
        apart = x - y
        return (apart * apart).sum(-1)

    model = annotated(rule, quantizer_of(SafeTOSAQuantizer))
    assert [name for name in wide(model) if name.startswith("sub")] == []
    assert len(wide(model)) == 2


def test_twice_equals_once():
    model = annotated(REDUCED["cosine similarity"][0], quantizer_of(SafeTOSAQuantizer))
    before = [str(node.meta.get("quantization_annotation")) for node in model.graph.nodes]
    assert wide(model)
    keep_products_exact(model)
    assert [str(node.meta.get("quantization_annotation")) for node in model.graph.nodes] == before


def test_a_mean_is_rounded_to_the_finest_part_of_a_step_whose_squares_fit():
    def scales(model):
        found = {}
        for node in model.graph.nodes:
            if "quantize_per_tensor" in str(node.target) and "de" not in str(node.target).split(".")[1][:2]:
                found[node.args[0].name] = node.args[1]
        return found

    def rule(m, x, y):
        apart = x - x.mean(1, keepdim=True)
        return (apart * apart).sum(1) + 0 * y.amax(1)

    by_name = scales(quantised(rule, quantizer_of(SafeTOSAQuantizer)))
    assert by_name["x"] / by_name["sub"] == pytest.approx(
        11
    )  # 64 squares of 510 * 11 fit 32 bits, and of 510 * 12 not.
