"""Real floats: what rounding explains starts no search and demotes nothing; what it does not explain is found."""

import functools

import planting
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from lowering import RELEASE, edge_program, lower, lower_safely, quantize, tosa
from proving import delegates_of
from small import Built, Lambda, image, qdq

import safe_arm
from benchmarks.proof_nets import Lstm, VitBlock, conv_bn, seeded
from safe_arm import CORRECTIONS, SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm._compat.upstream import TOSAPartitioner
from safe_arm.core.errors import DemotionWarning
from safe_arm.core.island import DEQUANTIZE, call_functions, op_name
from safe_arm.core.programs import placeholder_values
from safe_arm.verification import proof
from safe_arm.verification.distance import Distance, distance
from safe_arm.verification.evaluation import Evaluation

FLOAT = "TOSA-1.0+FP"
BEFORE_1_5 = RELEASE < (1, 5)


def excited(m, x):
    y = m.stem(x)
    return y * torch.sigmoid(m.b(F.relu(m.a(y.mean((2, 3), keepdim=True)))))


def squeeze_excite():
    return Built(excited, stem=conv_bn(4, 8, 3, 1, 1, nn.ReLU6), a=nn.Conv2d(8, 4, 1), b=nn.Conv2d(4, 8, 1))


def residual():
    layers = {"a": conv_bn(4, 4, 3, 1, 1, nn.ReLU), "b": conv_bn(4, 4, 3, 1, 1, nn.Identity)}
    return Built(lambda m, x: F.relu(m.b(m.a(x)) + x), **layers)


def chain(*layers):
    return lambda: nn.Sequential(*(layer() for layer in layers))


def transposed(inputs, outputs):
    return chain(lambda: nn.ConvTranspose2d(inputs, outputs, 2, 2), lambda: nn.BatchNorm2d(outputs), nn.ReLU)


#: Every batch norm has trained statistics.
NETS = {
    "conv": (chain(lambda: conv_bn(3, 8, 3, 1, 1, nn.ReLU), lambda: conv_bn(8, 8, 3, 1, 1, nn.ReLU)), 1, 3, 8, 8),
    "no activation": (lambda: nn.Sequential(*(conv_bn(4, 4, 3, 1, 1, nn.Identity) for _ in "ab")), 1, 4, 8, 8),
    # On 1.4 its batch norm is demoted (S43).
    **({} if BEFORE_1_5 else {"transposed": (transposed(3, 8), 1, 3, 6, 6)}),
    "depthwise": (lambda: conv_bn(4, 4, 3, 1, 4, nn.Hardswish), 1, 4, 8, 8),
    "grouped": (lambda: conv_bn(4, 8, 3, 1, 2, nn.SiLU), 1, 4, 8, 8),
    "1d": (chain(lambda: nn.Conv1d(4, 8, 3), lambda: nn.BatchNorm1d(8), nn.GELU), 1, 4, 16),
    "3d": (chain(lambda: nn.Conv3d(2, 4, 3), lambda: nn.BatchNorm3d(4), nn.ReLU), 1, 2, 4, 5, 5),
    "before": (chain(lambda: nn.BatchNorm2d(3), lambda: nn.Conv2d(3, 8, 3), nn.ReLU), 1, 3, 8, 8),
    "residual": (residual, 1, 4, 8, 8),
    "squeeze-excite": (squeeze_excite, 1, 4, 8, 8),
    "group norm": (chain(lambda: nn.Conv2d(4, 8, 3), lambda: nn.GroupNorm(2, 8), nn.ReLU), 1, 4, 8, 8),
    "layer norm": (chain(lambda: nn.Linear(8, 8), lambda: nn.LayerNorm((3, 8)), nn.ReLU), 1, 4, 3, 8),
    "layer norm of pairs": (chain(lambda: nn.LayerNorm(2)), 1, 7, 32, 2),
    "bilinear": (lambda: nn.UpsamplingBilinear2d((16, 6)), 2, 4, 8, 3),
    "attention": (VitBlock, 1, 8, 32),
    "lstm": (Lstm, 1, 4, 8),
}
by_net = pytest.mark.parametrize("name", NETS)


def verified(manager, net, inputs):
    """A lowered program beside its float net."""
    return safe_arm.verify(manager, [inputs], reference=torch.export.export(net, inputs).module(check_guards=False))


def report_of(net, inputs, profile=FLOAT):
    _, partitioner = lower_safely(net, inputs, tosa(profile), verify=True)
    return partitioner.report


@functools.cache
def made_of(name):
    """The delegates of a float net, unproven."""
    return delegates_of(*seeded(*NETS[name]), FLOAT)


@by_net
def test_rounding_starts_no_search(name, monkeypatch):
    monkeypatch.setattr(proof, "find_culprits", lambda *_: pytest.fail("the operators were looked at one by one"))
    assert made_of(name)
    assert all(proof.prove(delegate).verified for delegate in made_of(name))


@by_net
def test_the_search_blames_nothing_for_what_was_folded(name, monkeypatch):
    monkeypatch.setattr(proof, "distance", lambda *_: Distance(1.0, 1, 1, codes=False))
    assert all(proof.prove(delegate).verified for delegate in made_of(name))


@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
@pytest.mark.parametrize("channels", [(4, 4), (3, 8)], ids=str)
def test_a_batch_norm_that_is_folded_along_the_wrong_channels_is_demoted(channels):
    """S43, a bug of 1.4 alone."""
    net, inputs = seeded(transposed(*channels), 1, channels[0], 6, 6)
    ours, partitioner = lower_safely(net, inputs, tosa(FLOAT), verify=True)
    found = verified(ours, net, inputs)
    assert found.verified
    assert found.outputs[0].worst < 1e-6
    demoted = {verdict.op for verdict in partitioner.report.demoted}
    assert ("aten::_native_batch_norm_legit_no_training" in demoted) == BEFORE_1_5


@pytest.mark.skipif(not BEFORE_1_5, reason="S43 is a bug of 1.4")
def test_stock_folds_it_along_the_wrong_channels():
    net, inputs = seeded(transposed(4, 4), 1, 4, 6, 6)
    stock = lower(net, inputs, TOSAPartitioner(tosa(FLOAT)))
    assert verified(stock, net, inputs).outputs[0].worst > 0.01


ISLANDS = (((3, 8), nn.ReLU), ((8, 8), nn.SiLU), ((8, 4), nn.ReLU))
#: A batch norm that was not folded before quantisation, and one whose convolution stays float.
AMONG_QUANTISED = {
    "linear": (chain(lambda: nn.Linear(8, 16), lambda: nn.BatchNorm1d(16), nn.Tanh), 4, 8),
    "float islands": (lambda: nn.Sequential(*(conv_bn(*sizes, 3, 1, 1, act) for sizes, act in ISLANDS)), 1, 3, 8, 8),
}


@pytest.mark.parametrize("name", AMONG_QUANTISED)
def test_batch_norms_among_quantised_operators(name):
    net, inputs = seeded(*AMONG_QUANTISED[name])
    profile = "TOSA-1.0+INT+FP"
    quantised = quantize(net, inputs, tosa(profile), quantizer_class=_first_stays_float)
    report = report_of(quantised, inputs, profile)
    # Stock cannot fold a batch norm of a matrix (a RuntimeError).
    assert {v.stage for v in report.demoted} <= {"trial"}
    assert all(each.verified for each in report.verifications)


def _first_stays_float(spec):
    quantizer = SafeTOSAQuantizer(spec)
    quantizer.set_module_name("1", None)
    return quantizer


#: 1 + erf(-8) is 0 in float32; a series of four terms stands for the exponential less one; in float32 1 - 1e-6 is 1.3 %
#: further from 1, and the float program on a CPU is as far from the same in double.
THROUGH = {
    **{each.__name__: each for each in (F.elu, F.celu, F.selu, F.gelu, F.leaky_relu, F.mish, torch.atan, torch.expm1)},
    "log1p": lambda x: torch.log1p(x.abs()),
    "logit held by a millionth": lambda x: torch.logit(x, eps=1e-6),
}


@pytest.mark.parametrize("name", THROUGH)
def test_what_a_function_goes_through_is_no_difference(name):
    report = report_of(Lambda(lambda m, x: THROUGH[name](x)), image())
    assert report.demoted == ()
    assert all(each.verified for each in report.verifications)


def extremes(m, x):
    y = torch.atan(x.round())
    return y.min(1).values, y.max(2, keepdim=True).values, y.amin((2, 3)), torch.max(y)


def test_the_extreme_of_what_is_approximated_is_no_difference():
    """It is off as the worst of what it is of: atan by 1.6e-4 around 1."""
    net, ones = Lambda(extremes), (torch.ones(1, 4, 8, 8),)
    manager, partitioner = lower_safely(net, ones, tosa(FLOAT), verify=True)
    assert partitioner.report.demoted == ()
    assert verified(manager, net, ones).first_wrong is None


def one_channel(weight):
    changed = weight.clone()
    changed[2] *= 1.001
    return changed


@pytest.mark.usefixtures("by_measurement_alone")
@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
@pytest.mark.parametrize("name", ["conv", "residual", "squeeze-excite"])
def test_a_thousandth_of_one_channel_is_found_in_the_float_program(name):
    net, inputs = seeded(*NETS[name])
    with planting.planted("RewriteConvPass", planting.data(1, one_channel, "tosa::CONV2D")):
        report = report_of(net, inputs)
    wrong = [v for v in report.demoted if v.stage == "verify"]
    assert "aten::convolution" in {v.op for v in wrong}
    assert all("differs from the float program by up to" in v.reason for v in wrong)


NARROW = pytest.mark.parametrize(
    ("dtype", "profile"), [(torch.bfloat16, "TOSA-1.0+FP+bf16"), (torch.float16, FLOAT)], ids=["bfloat16", "float16"]
)


def long_sums(dtype):
    """A convolution of 576 terms, which any result would fit if each of them were rounded to 8 bits."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(64, 12, 3, padding=1), nn.PixelShuffle(2))
    return layers.to(dtype).eval(), (torch.rand(1, 64, 24, 24).to(dtype),)


@NARROW
def test_long_sums_of_16_bits_are_found_in_the_layout_they_have(dtype, profile):
    report = report_of(*long_sums(dtype), profile)
    assert report.demoted == ()
    assert all(each.verified for each in report.verifications)


def a_channel_of_zeros(weight):
    changed = weight.clone()
    changed[2] = 0
    return changed


@NARROW
@pytest.mark.usefixtures("by_measurement_alone")
@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
def test_a_lost_channel_is_found_among_long_sums_of_16_bits(dtype, profile):
    with planting.planted("RewriteConvPass", planting.data(1, a_channel_of_zeros, "tosa::CONV2D")):
        report = report_of(*long_sums(dtype), profile)
    assert {v.op for v in report.demoted} >= {"aten::convolution"}


def divided_by_its_deviation(m, x):
    apart = x - x.mean(1, keepdim=True)
    return apart / (apart.square().mean(1, keepdim=True) + 1e-6).sqrt() * m.weight + m.bias


@NARROW
def test_what_the_delegate_has_no_tensor_of_is_no_difference_in_16_bits(dtype, profile):
    """The quotient has none: its roundings, of 16 bits, are the sum's."""
    affine = {"weight": torch.rand(1, 16, 1, 1), "bias": torch.rand(1, 16, 1, 1)}
    net, inputs = Built(divided_by_its_deviation, **affine).to(dtype).eval(), (torch.randn(1, 16, 24, 24).to(dtype),)
    manager, partitioner = lower_safely(net, inputs, tosa(profile), verify=True)
    assert partitioner.report.demoted == ()
    assert verified(manager, net, inputs).first_wrong is None


def in_float(nodes, values):
    """Evaluate operators in float32, each on the values before it."""
    for node in nodes:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        values[node] = node.target(*args, **kwargs)
    return values


@by_net
def test_float32_is_within_the_bound(name):
    dtype_is_within_the_bound(name, torch.float32, 1e-4)


@pytest.mark.parametrize(("dtype", "share"), [(torch.bfloat16, 0.5), (torch.float16, 0.06)], ids=str)
@pytest.mark.parametrize("name", ["residual", "grouped", "group norm"])
def test_16_bits_are_within_the_bound(name, dtype, share):
    dtype_is_within_the_bound(name, dtype, share)


def dtype_is_within_the_bound(name, dtype, share):
    net, inputs = seeded(*NETS[name])
    net, inputs = net.to(dtype), tuple(each.to(dtype) for each in inputs)
    program = edge_program(net, inputs)
    state = {**program.state_dict, **program.constants}
    given = placeholder_values(program, state, inputs)
    exact = Evaluation(dict(given), errors={})
    nodes = list(call_functions(program.graph_module))
    exact.run(nodes)
    floats = in_float(nodes, given)
    for node in nodes:
        if isinstance(floats[node], torch.Tensor) and floats[node].is_floating_point():
            assert distance(node, floats[node], exact).worst == 0, node
    sums = [n for n in nodes if op_name(n) in ("aten::convolution", "aten::linear")]
    assert all((exact.errors[n] <= share * exact.values[n].abs().max()).all() for n in sums), "it says something"


@pytest.mark.parametrize("function", [torch.asin, torch.acos], ids=["asin", "acos"])
def test_an_inverse_that_is_a_wrong_polynomial_is_further_off_than_rounding_and_demoted(function):
    """S24, without its correction; atan is a tenth as far off and has a row in the table."""
    net, inputs = Lambda(lambda m, x: function(x.clamp(-0.9, 0.9)) + 1).eval(), image()
    stock = lower(net, inputs, TOSAPartitioner(tosa(FLOAT)))
    assert verified(stock, net, inputs).outputs[0].worst > 1e-4
    others = tuple(each for each in CORRECTIONS if each.issue != "S24")
    partitioner = SafeArmPartitioner(tosa(FLOAT), corrections=others)
    with pytest.warns(DemotionWarning, match="differs from the float program by up to"):
        lower(net, inputs, partitioner)
    assert f"aten::{function.__name__}" in {verdict.op for verdict in partitioner.report.demoted}


@pytest.mark.parametrize(("codes", "apart"), [(0.0, 0), (0.02, 0), (0.1, 1), (1.0, 1)])
def test_a_dequantised_code_of_16_bits_is_right_within_float32(codes, apart):
    """30,000 codes times a step, in float32, are a hundredth of a code off."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    step = 0.0008015292696654797
    dequantize = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    node = graph.call_function(dequantize, (x, step, 0, -32767, 32767, torch.int16))
    evaluation = Evaluation({node: torch.tensor([30000.0], dtype=torch.float64) * step})
    assert distance(node, torch.tensor([(30000.0 + codes) * step], dtype=torch.float64), evaluation).worst == apart


@pytest.mark.parametrize(("codes", "apart"), [(0.0, 0), (0.5, 1), (1.0, 1)])
def test_a_dequantised_code_in_half_precision_is_right_within_that(codes, apart):
    """The step itself is rounded, by which 200 codes are a twentieth of a code off."""
    graph = torch.fx.Graph()
    step = 0.015276697464287281
    dequantize = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    node = graph.call_function(dequantize, (graph.placeholder("x"), step, -100, -128, 127, torch.int8))
    evaluation = Evaluation({node: torch.tensor([200.0], dtype=torch.float64) * step})
    actual = torch.tensor([200.0 + codes]).half() * torch.tensor(step).half()
    assert abs(float(actual) / step - 200 - codes) > 0.01
    assert distance(node, actual, evaluation).worst == apart


def errors_of(function, x):
    """What each operator of a float program may be off, by name."""
    program = edge_program(Lambda(lambda m, x: function(x)), (x,))
    state = {**program.state_dict, **program.constants}
    evaluation = Evaluation(placeholder_values(program, state, (x,)), errors={})
    nodes = list(call_functions(program.graph_module))
    evaluation.run(nodes)
    return {op_name(node): evaluation.errors.get(node) for node in nodes}


@pytest.mark.parametrize("function", [torch.sigmoid, torch.tanh, F.gelu, torch.exp, lambda x: x / 3])
@NARROW
def test_a_function_of_16_bits_is_off_by_some_roundings(function, dtype, profile):
    x = torch.linspace(0.5, 1, 64, dtype=dtype)
    *_, error = (each for each in errors_of(lambda x: function(x), x).values() if each is not None)
    exact = function(x.double())
    assert ((function(x).double() - exact).abs() <= error).all()
    assert (error <= 20 * torch.finfo(dtype).eps * exact.max()).all()


@NARROW
def test_a_norm_of_16_bits_is_off_by_some_roundings(dtype, profile):
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    error = errors_of(lambda x: F.layer_norm(x, (64,)), x)["aten::native_layer_norm"][0]
    exact = F.layer_norm(x.double(), (64,))
    assert ((F.layer_norm(x, (64,)).double() - exact).abs() <= error).all()
    assert (error <= 30 * torch.finfo(dtype).eps * exact.abs().max()).all()


def test_a_value_that_float16_has_few_bits_for_is_off_by_its_last():
    graph = torch.fx.Graph()
    node = graph.call_function(torch.ops.aten.mul.Tensor, (graph.placeholder("x"), 2.0))
    node.meta["val"] = torch.zeros(2, dtype=torch.float16)
    exact = torch.tensor([1.0, 1e-6], dtype=torch.float64)
    evaluation = Evaluation({node: exact}, errors={node: exact * 0})
    last = torch.tensor([0.0, 2.0**-24], dtype=torch.float64)
    assert [distance(node, exact + last * steps, evaluation).wrong for steps in (1, 9)] == [0, 1]
    node.meta["val"] = torch.zeros(2)
    assert distance(node, exact + last, evaluation).wrong == 1


def test_a_quotient_is_off_by_more_where_the_divisor_may_be_nothing():
    x = torch.tensor([[1.0, 0.5]])
    error = errors_of(lambda x: x / (x.sum(1, keepdim=True) - 1.5), x)["aten::div"]
    assert error.isinf().all()
    error = errors_of(lambda x: x.exp() / (x.sum(1, keepdim=True) + 1), x)["aten::div"]
    assert (error < 1e-4).all()


def test_a_row_s_softmax_is_off_as_that_row_is():
    errors = errors_of(lambda x: torch.softmax(x + x, 1), torch.tensor([[1e5] * 3, [1.0] * 3]))
    large, small = errors["aten::_softmax"]
    assert (large > 1.5 * small).all()
    assert large.isfinite().all()


def test_a_batch_of_products_is_off_as_each_is():
    batch = torch.rand(2, 3, 64)
    of_batch, of_one = (errors_of(lambda x: x.clone() @ x.mT, each) for each in (batch, batch[0]))
    assert torch.allclose(of_batch["aten::bmm"][0], of_one["aten::mm"])


def test_what_is_exact_stays_so_when_it_moves():
    errors = errors_of(lambda x: x.permute(1, 0).amax(0), torch.rand(2, 3))
    assert set(errors.values()) == {None}


def test_the_value_of_a_code_has_no_error():
    """The code may be another; a function of its value is off by its own roundings alone."""
    errors = errors_of(lambda x: torch.tanh(qdq(x + x, 0.1, 0)), torch.rand(2, 3))
    assert {name for name, error in errors.items() if error is None} == {*DEQUANTIZE} & errors.keys()
    assert errors["aten::tanh"].isfinite().all()


def grouped(x):
    return F.group_norm(x.T[None], 2)[0].T


@pytest.mark.parametrize(("norm", "name"), [(lambda x: F.layer_norm(x, (2,)), "layer"), (grouped, "group")])
def test_a_norm_is_off_by_more_where_its_values_hardly_differ(norm, name):
    """A rounding of their mean is 1e-4 of the difference of the first two."""
    pairs = torch.tensor([[1.0, 1.0 + 1e-3], [1.0, -2.0]])
    x = pairs if name == "layer" else pairs.reshape(1, 4)
    errors = errors_of(norm, x)[f"aten::native_{name}_norm"][0].flatten().reshape(2, 2)
    off = (norm(x) - norm(x.double())).abs().reshape(2, 2)
    assert (off <= errors).all()
    assert (errors[0] > 1e-4).all()
    assert (errors[1] < 3e-5).all()
