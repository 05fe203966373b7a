"""Products of all elements so far keep 16 bits from one window to the next."""

import pytest
import torch
from graph_changes import annotated, annotates_no_more, wide
from lowering import HISTOGRAM, PROFILES, min_max, tosa
from ratios import quantised, ratio, ratio_of_rounded_borders
from small import Lambda
from spelled import check_one_exact
from stubborn import quantizer_of

from safe_arm.quantizer import ordered_steps
from safe_arm.quantizer.precision.fine_scans import keep_scans_fine

DRAWS = [torch.Generator().manual_seed(seed) for seed in range(8)]
SAMPLES = [(torch.randn(2, 8, generator=draw),) for draw in DRAWS]
KEPT = {
    "two elements": lambda m, x: x[..., :2].cumprod(-1),
    "products of other parts": lambda m, x: (x * x[..., :1]) * torch.nn.functional.pad(x[..., :-1], (1, 0), value=1.0),
    "sums so far": lambda m, x: x.cumsum(-1),
}


def so_far(m, x):
    return x.cumprod(-1)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_one_delegate_is_exact(profile):
    check_one_exact(quantised(so_far, quantizer_of(profile=profile), SAMPLES), SAMPLES[0], tosa(profile))


def test_eight_bits_lose_what_sixteen_keep(monkeypatch):
    borders = ratio_of_rounded_borders(so_far, SAMPLES)
    ours = ratio(quantised(so_far, quantizer_of(config=min_max()), SAMPLES), so_far, SAMPLES)
    monkeypatch.setattr(ordered_steps, "KEPT_FINE", ())
    coarse = ratio(quantised(so_far, quantizer_of(config=min_max()), SAMPLES), so_far, SAMPLES)
    assert ours > borders - 1
    assert coarse < borders - 3


def test_all_windows_but_the_last_have_16_bits():
    model = annotated(Lambda(so_far), quantizer_of(config=HISTOGRAM), SAMPLES[0])
    assert wide(model, "mul", dtype=torch.int16) == ["mul_tensor", "mul_tensor_1"]


@pytest.mark.parametrize("rule", KEPT.values(), ids=KEPT)
def test_the_near_miss_keeps_8_bits(rule):
    model = annotated(Lambda(rule), quantizer_of(config=HISTOGRAM), SAMPLES[0])
    assert not wide(model, "", dtype=torch.int16)


def test_twice_equals_once():
    assert annotates_no_more(keep_scans_fine, annotated(Lambda(so_far), quantizer_of(config=HISTOGRAM), SAMPLES[0]))
