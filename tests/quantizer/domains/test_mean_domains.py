"""The mean of a norm and the sum of a softmax keep to their domains on other rows than those calibrated, exactly."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated, annotates_no_more, quantised_whole
from lowering import HISTOGRAM, WIDE, quantize, tosa
from ratios import quantised, ratio
from small import Lambda, together
from spelled import check_one_exact
from stubborn import quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.island import QParams
from safe_arm.quantizer.domains.mean_domains import RoomyObserver, leave_room_for_means, leave_room_for_softmaxes

SUM = torch.ops.aten.sum.dim_IntList


def rows(number, start=0):
    """Samples of a decoder's step: one row each."""
    return [(torch.randn(1, 1, 32, generator=torch.Generator().manual_seed(start + each)),) for each in range(number)]


ROWS = rows(12)
NORM = Lambda(lambda m, x: F.layer_norm(x, (32,)))
FEW = Lambda(lambda m, x: F.layer_norm(x, (8,)))
CENTRED = Lambda(lambda m, x: x - x.mean(-1, keepdim=True))


def saturated(quantizer_class, model, inputs):
    """How many rows of means lie beyond the domain that rows of other samples gave them."""
    net = quantised_whole(quantizer_of(quantizer_class), model, ROWS)
    (mean,) = net.graph.find_nodes(op="call_function", target=SUM)[:1]
    domain = QParams.of(next(iter(mean.users)))
    sums = torch.stack([row.sum() for (row,) in inputs])
    codes = torch.round(sums / domain.scale) + domain.zero_point
    return int(((codes < -128) | (codes > 127)).sum())


def test_stock_saturates_the_means_of_other_rows_and_ours_does_not():
    others = rows(100, start=500)
    assert saturated(TOSAQuantizer, CENTRED, others) > 5
    assert saturated(SafeTOSAQuantizer, CENTRED, others) == 0


def test_of_16_bits_no_row_of_few_values_saturates_and_with_stock_one_does():
    """The means of other rows are twice those of calibration; their values stay within its range."""
    draw = torch.Generator().manual_seed(0)
    samples = [(torch.randn(1, 6, 8, generator=draw) + level,) for level in (-1.0, 0.0, 1.0)]
    samples.append((torch.tensor((-6.0, 6.0)).repeat(1, 6, 4),))
    others = [(torch.randn(1, 6, 8, generator=draw) + level,) for level in (-2.5, 2.5)]
    found = []
    for quantizer_class in (TOSAQuantizer, SafeTOSAQuantizer):
        quantizer = quantizer_of(quantizer_class, "TOSA-1.0+INT+int16", config=WIDE)
        found.append(ratio(quantised(FEW.function, quantizer, samples), FEW.function, others))
    of_stock, ours = found
    assert of_stock < 25
    assert ours > 60


def test_the_more_rows_were_seen_the_less_room_is_left():
    widths = []
    for number in (16, 1600):
        observer = RoomyObserver(dtype=torch.int8, quant_min=-128, quant_max=127, qscheme=torch.per_tensor_affine)
        observer(torch.linspace(-1, 1, number))
        scale, _ = observer.calculate_qparams()
        widths.append(float(scale) * 255)
    assert widths == pytest.approx([4.0, 2.02])


@pytest.mark.parametrize("model", [NORM, CENTRED], ids=["a norm", "centred"])
def test_the_one_delegate_is_exact(model, profile):
    check_one_exact(quantize(model, ROWS[0], tosa(profile)), ROWS[0], tosa(profile))


NEAR_MISSES = {
    "a mean": lambda m, x: x.mean(-1, keepdim=True),
    "what is taken from a mean": lambda m, x: x.mean(-1, keepdim=True) - x,
    "from other values": lambda m, x: x * 2 - x.mean(-1, keepdim=True),
    "of few values": lambda m, x: x[..., :8] - x[..., :8].mean(-1, keepdim=True),
}


def test_near_misses_keep_their_observers():
    model = annotated(Lambda(together(NEAR_MISSES)), quantizer_of(TOSAQuantizer), ROWS[0])
    assert annotates_no_more(leave_room_for_means, model)


def test_twice_equals_once():
    assert annotates_no_more(leave_room_for_means, annotated(NORM, quantizer_of(), ROWS[0]))


def softmax(m, x):
    return torch.softmax(x, -1) * 1


def masked(m, x):
    return torch.softmax(torch.where(x > 1, -1e9, x), -1) * 1


def ratio_of_others(quantizer_class, rule):
    """The ratio of a rule that was calibrated on few rows, on other ones."""
    quantizer = quantizer_of(quantizer_class, config=HISTOGRAM)
    return ratio(quantised(rule, quantizer, rows(8)), rule, rows(100, start=500))


def logarithm(m, x):
    return torch.log_softmax(x, -1)


@pytest.mark.parametrize(("rule", "least"), [(softmax, 22.5), (masked, 23.5), (logarithm, 36.0)])
def test_the_sum_of_a_softmax_has_room_for_other_rows(rule, least):
    assert ratio_of_others(TOSAQuantizer, rule) < least - 2.5
    assert ratio_of_others(SafeTOSAQuantizer, rule) > least


@pytest.mark.parametrize("rule", [softmax, masked, logarithm])
def test_the_delegate_of_a_softmax_is_exact(rule, profile):
    check_one_exact(quantize(Lambda(rule), ROWS[0], tosa(profile)), ROWS[0], tosa(profile))


def test_another_quotient_keeps_its_observer_and_a_softmax_has_room_once():
    for rule in (
        lambda m, x: x / x.abs().sum(-1, keepdim=True),
        lambda m, x: x.exp() / x.exp().amax(),
        lambda m, x: x.exp().log(),
    ):
        model = annotated(Lambda(rule), quantizer_of(TOSAQuantizer), ROWS[0])
        assert annotates_no_more(leave_room_for_softmaxes, model)
    model = annotated(Lambda(softmax), quantizer_of(TOSAQuantizer), ROWS[0])
    assert not annotates_no_more(leave_room_for_softmaxes, model)
    assert annotates_no_more(leave_room_for_softmaxes, model)
