"""The inverse root of a norm has the bits of two steps, and the delegate computes it exactly."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated, annotates_no_more, changes
from lowering import PROFILES, codes_apart, lower_safely, min_max, stock_codes_apart, targets, tosa
from ratios import for_ethos_u, quantised
from small import Lambda, Q, together
from stubborn import calibrated, exported, quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.precision.norm_roots import keep_norm_roots, write_norm_roots
from safe_arm.verification.double import evaluate_in_double

WEIGHT = torch.linspace(-1.5, 1.5, 48)
BIAS = torch.linspace(1, -1, 48)


def rms(x, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


#: By name, a norm of whole numbers from -128 to 127, and the shape of these.
NORMS = {
    "rank 2": (lambda m, x: F.layer_norm(x, (48,)), (24, 48)),
    "weight": (lambda m, x: F.layer_norm(x, (48,), WEIGHT), (1, 24, 48)),
    "weight and bias": (lambda m, x: F.layer_norm(x, (48,), WEIGHT, BIAS), (2, 12, 48)),
    "rank 4": (lambda m, x: F.layer_norm(x, (48,), WEIGHT, BIAS), (2, 3, 4, 48)),
    "two dimensions": (lambda m, x: F.layer_norm(x, (4, 12), WEIGHT.view(4, 12)), (2, 12, 4, 12)),
    "large epsilon": (lambda m, x: F.layer_norm(x, (48,), WEIGHT, BIAS, eps=900.0), (2, 12, 48)),
    "wide": (lambda m, x: F.layer_norm(x, (2048,), torch.linspace(0.5, 1.5, 2048)), (1, 4, 2048)),
    "no power of two": (lambda m, x: F.layer_norm(x, (768,)), (1, 8, 768)),
    "groups": (lambda m, x: F.group_norm(x, 4, WEIGHT[:8], BIAS[:8]), (2, 8, 4, 8)),
    "instances": (lambda m, x: F.instance_norm(x), (2, 8, 4, 8)),
    "root mean square": (lambda m, x: rms(x) * WEIGHT, (2, 12, 48)),
    "RMSNorm": (lambda m, x: F.rms_norm(x, (48,), WEIGHT), (2, 12, 48)),
    "length with epsilon": (lambda m, x: x / (x.pow(2).sum(-1, keepdim=True) + 0.1).sqrt(), (2, 12, 48)),
    "division by a root": (
        lambda m, x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 0.1).sqrt() * WEIGHT,
        (2, 12, 48),
    ),
}
KEPT = {
    "a root that is an output": lambda m, x: (x.var(-1, keepdim=True) + 1).rsqrt(),
    "a root that is added": lambda m, x: x + (x.var(-1, keepdim=True) + 1).rsqrt(),
    "a root of a mean of anything else": lambda m, x: x * (x.abs().mean(-1, keepdim=True) + 1).rsqrt(),
    "a mean that is an output": lambda m, x: (lambda y: (y, x * (y + 1).rsqrt()))(x.pow(2).mean(-1, keepdim=True)),
}


def rows(seed, shape):
    """Whole numbers that 8 bits do not round: rows whose spread differs up to 20 times, each about its own mean."""
    generator = torch.Generator().manual_seed(seed)
    dims = (2, 3) if shape[-2:] in ((4, 12), (4, 8)) else (-1,)
    each = [1 if dim % len(shape) in [d % len(shape) for d in dims] else size for dim, size in enumerate(shape)]
    spread = 2.5 * 20 ** torch.rand(each, generator=generator)
    centre = 10 * torch.randn(each, generator=generator)
    values = torch.randn(shape, generator=generator) * spread + centre
    values = values.round().clamp(-128, 127)
    values.view(-1)[0], values.view(-1)[1] = -128, 127
    return (values,)


def apart(rule, quantizer_class, shape):
    """How many codes a quantised rule is off the float one, at most."""
    samples = [rows(seed, shape) for seed in range(4)]
    net = quantised(rule, quantizer_of(quantizer_class, config=min_max()), samples)
    scale = [node.args[1] for node in net.graph.find_nodes(op="call_function", target=Q)][-1]
    worst = 0.0
    for sample in samples:
        difference = net(*sample) - rule(None, *sample)
        worst = max(worst, float(difference.abs().max()) / scale)
    return worst


def roots_of(rule, quantizer, inputs):
    """The number of inverse roots of an annotated rule."""
    return targets(annotated(Lambda(rule), quantizer, inputs)).count("rsqrt")


@pytest.mark.parametrize("name", NORMS)
def test_ours_is_hardly_more_than_the_rounded_output(name):
    rule, shape = NORMS[name]
    # Half a code for the output; a weight in 8 bits, a root in 11 and a mean in an eighth of a step make up the rest.
    assert apart(rule, SafeTOSAQuantizer, shape) < 1.2


@pytest.mark.parametrize("name", ["weight and bias", "root mean square"])
def test_stock_is_many_codes_off(name):
    rule, shape = NORMS[name]
    assert apart(rule, TOSAQuantizer, shape) > 7


def check_exact(rule, samples, others, profile=PROFILES[0]):
    """Check that the one delegate computes the quantised graph in double, where that is exact, of other rows too."""
    graph_module = quantised(rule, quantizer_of(profile=profile), samples)
    manager, partitioner = lower_safely(graph_module, samples[0], tosa(profile))
    assert partitioner.report.fallbacks == ()
    evaluate_in_double(graph_module)
    graph_module.recompile()
    assert codes_apart(manager, graph_module, samples[0], *others) == 0


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", ["weight and bias", "instances", "root mean square", "large epsilon"])
def test_the_one_delegate_is_exact_for_other_rows_too(name, profile):
    rule, shape = NORMS[name]
    others = [(rows(1, shape)[0] * gain,) for gain in (0.0117, 0.3131, 4.0)]
    check_exact(rule, [rows(0, shape)], others, profile)


@pytest.mark.parametrize("name", ["rank 2", "weight", "root mean square"])
def test_stock_s_partitioner_computes_it_too(name):
    """Whoever takes our quantiser alone must not be worse off."""
    rule, shape = NORMS[name]
    graph = quantised(rule, quantizer_of(), [rows(0, shape)])
    assert stock_codes_apart(graph, rows(0, shape), tosa(PROFILES[0])) == 0


@pytest.mark.parametrize("width", [2, 192, 2048])
@pytest.mark.parametrize("is_centred", [True, False])
def test_the_widest_spread_does_not_overflow_where_calibration_saw_little(width, is_centred):
    """Of a row of the least and the largest code, sum, mean and all products fit 32 bits."""
    weight = torch.linspace(0.5, 2, width)
    little = torch.randn(1, 4, width, generator=torch.Generator().manual_seed(0))
    little.view(-1)[0], little.view(-1)[1] = -100, 100
    extreme = torch.full((1, 4, width), 1e3)
    extreme[..., ::2] = -1e3
    extreme[0, 1, 1:] = -1e3
    extreme[0, 2] = 1e3

    def rule(m, x):
        return F.layer_norm(x, (width,), weight, 0.71 * weight) if is_centred else rms(x) * weight

    check_exact(rule, [(little,)], [(extreme,)])


#: Norms of few values, which may all but agree, and the shape of what they read.
FEW = {
    "layer": (lambda m, x: F.layer_norm(x, (2,)), (128, 2)),
    "group": (lambda m, x: F.group_norm(x, 4), (128, 8)),
    "instance": (lambda m, x: F.instance_norm(x), (4, 32, 2)),
}


def near_pairs(shape):
    """Whole numbers that 8 bits do not round: pairs up to 255 apart, many of them by little."""
    x = torch.empty(shape)
    pairs = x.view(-1, 2)
    apart = (255 * torch.rand(len(pairs), generator=torch.Generator().manual_seed(0)) ** 4).ceil()
    pairs[:, 0] = torch.arange(len(pairs)) % (256 - apart) - 128
    pairs[:, 1] = pairs[:, 0] + apart
    pairs[0, 0], pairs[0, 1] = -128, 127
    return (x,)


@pytest.mark.parametrize("name", FEW)
def test_few_values_that_all_but_agree_have_their_factor(name):
    rule, shape = FEW[name]
    samples = [near_pairs(shape)]
    expected = rule(None, *samples[0])
    ours = quantised(rule, quantizer_of(config=min_max()), samples)
    assert (ours(*samples[0]) - expected).abs().max() < 0.02
    check_exact(rule, samples, [(-samples[0][0],)])


@pytest.mark.parametrize("name", ["layer", "group"])
def test_stock_loses_that_of_few_values(name):
    rule, shape = FEW[name]
    samples = [near_pairs(shape)]
    stock = quantised(rule, quantizer_of(TOSAQuantizer, config=min_max()), samples)
    assert (stock(*samples[0]) - rule(None, *samples[0])).abs().max() > 0.9


def test_rows_of_equal_values_are_the_bias():
    x = rows(0, (1, 12, 48))[0]
    x[:, 6:] = torch.arange(-3.0, 3.0).view(6, 1) * 40
    rule = NORMS["weight and bias"][0]
    net = quantised(rule, quantizer_of(config=min_max()), [(x,)])
    scale = [node.args[1] for node in net.graph.find_nodes(op="call_function", target=Q)][-1]
    # Half a code for the output and half a step of the bias in 8 bits.
    assert float((net(x) - rule(None, x))[:, 6:].abs().max()) < 0.9 * scale


def test_one_value_has_no_variance():
    x = torch.linspace(-1, 1, 12).view(1, 12, 1)
    net = quantised(lambda m, x: F.layer_norm(x, (1,)) + 1, quantizer_of(), [(x,)])
    # A code of 0 to 1.
    assert (net(x) - 1).abs().max() <= 1 / 255


def test_a_batch_may_be_dynamic():
    x = rows(0, (3, 48))
    rule = NORMS["rank 2"][0]
    shapes = {"x": {0: torch.export.Dim("batch", min=1, max=8)}}
    model = torch.export.export(Lambda(rule), x, dynamic_shapes=shapes).module(check_guards=False)
    net = calibrated(model, quantizer_of(), [x])
    assert targets(net).count("rsqrt") == 2
    y = rows(1, (5, 48))[0]
    scale = [node.args[1] for node in net.graph.find_nodes(op="call_function", target=Q)][-1]
    assert float((net(y) - rule(None, y)).abs().max()) < 1.1 * scale


def test_near_misses_keep_one_step():
    assert roots_of(together(KEPT), quantizer_of(), rows(0, (2, 12, 48))) == len(KEPT)


def test_on_an_ethos_u85_and_in_training_it_is_one_step():
    """In training, an inverse root of code 0, which a correction would multiply, has no gradient."""
    quantizers = {
        "U85": for_ethos_u("ethos-u85-256"),
        "training": quantizer_of(is_qat=True),
        "U55": for_ethos_u("ethos-u55-128"),
    }
    rule, shape = NORMS["weight"]
    found = {name: roots_of(rule, quantizer, rows(0, shape)) for name, quantizer in quantizers.items()}
    assert found == {"U85": 1, "training": 1, "U55": 2}


def test_twice_equals_once():
    quantizer = quantizer_of()
    model = quantizer.transform_for_annotation(exported(Lambda(NORMS["root mean square"][0]), rows(0, (2, 12, 48))))
    assert targets(model).count("rsqrt") == 2
    assert not changes(write_norm_roots, model)
    assert annotates_no_more(keep_norm_roots, quantizer.annotate(model))
