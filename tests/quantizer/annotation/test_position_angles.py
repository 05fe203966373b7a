"""A time step and the position of a rotary embedding have an angle of hundreds, which int8 cannot hold."""

import graph_changes
import pytest
import torch
from lowering import PROFILES, lower_exactly, lower_in_part, quantize, tosa
from ratios import histogram_ratios
from small import Lambda
from stubborn import exported, quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.annotation.position_angles import angles_left_alone

FREQUENCIES = torch.logspace(0, -3, 8)
X = torch.linspace(-1, 1, 64).view(1, 8, 8)


def embedded(m, x, t):
    angle = t[:, None].float() * FREQUENCIES
    return x * angle.sin() + x.flip(1) * angle.cos()


def rotated(m, x, position):
    angle = (FREQUENCIES[None, :, None].expand(1, -1, 1) @ position[:, None].float()).transpose(1, 2)
    twice = torch.cat((angle, angle), 2)
    return x * twice.cos()[..., :8] + x.flip(1) * twice.sin()[..., :8]


def moments(*shape, dtype):
    return [(X * (1 - 0.02 * k), torch.full(shape, 37 * k % 1000).to(dtype)) for k in range(24)]


CASES = {
    "a time step": (embedded, moments(1, dtype=torch.int64)),
    "a time step that is a float": (embedded, moments(1, dtype=torch.float32)),
    "positions": (rotated, moments(1, 8, dtype=torch.int32)),
}
#: An angle that is read beside a value, in one operator.
CALL = (lambda m, x, call: x * (call.float() * 0.1).sin(), moments(1, dtype=torch.int32))
NEAR_MISSES = {
    "a layer": (lambda m, x, t: torch.sin(x @ torch.ones(8, 8)), 1),
    "many floats": (lambda m, x, t: torch.sin(t[:, None] * FREQUENCIES), 5),
    "a small picture": (lambda m, x, t: torch.sin(t) + x[0, 0, 0], (1, 2, 2)),
    "a table": (lambda m, x, t: torch.sin(m.linear.weight[t.int()]) + x[0, 0, 0], 1),
    "a number that is computed": (lambda m, x, t: torch.sin(x.mean() * FREQUENCIES) + t, 1),
    "a sum with a value": (lambda m, x, t: torch.sin(t[:, None] * FREQUENCIES + x[0]), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_stock_keeps_little_and_ours_all(name):
    stock, ours = histogram_ratios(*CASES[name])
    assert stock < 15
    assert ours > 35


@pytest.mark.parametrize("name", CASES)
def test_what_is_around_them_is_exact(name):
    rule, samples = CASES[name]
    quantised = quantize(Lambda(rule), samples[5], tosa(PROFILES[0]))
    lower_in_part(quantised, tosa(PROFILES[0]), samples[5])


@pytest.mark.parametrize("case", [CASES["a time step that is a float"], CASES["positions"], CALL])
def test_a_profile_with_float_takes_them(case):
    rule, samples = case
    quantised = quantize(Lambda(rule), samples[5], tosa("TOSA-1.0+INT+FP"))
    lower_exactly(quantised, tosa("TOSA-1.0+INT+FP"), samples[5])


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_the_near_miss_is_quantised(name):
    rule, size = NEAR_MISSES[name]
    model = graph_changes.annotated(Lambda(rule), quantizer_of(SafeTOSAQuantizer), (X, torch.ones(size)))
    (wave,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)
    assert "quantization_annotation" in wave.meta


def test_twice_equals_once_and_nothing_stays_behind():
    rule, samples = CASES["positions"]
    model = exported(Lambda(rule), samples[0])
    with angles_left_alone(model), angles_left_alone(model):
        pass
    assert not any("quantization_annotation" in node.meta for node in model.graph.nodes)
