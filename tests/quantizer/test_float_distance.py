"""Differences are held against what rounding does to the net: a lost operator is none of it, a tie is."""

import pytest
import torch
from graph_changes import graph_of
from small import image

from safe_arm.quantizer import float_distance
from safe_arm.quantizer.float_distance import difference
from safe_arm.quantizer.float_net import Call, FloatNet, Results

X = image()


def told(forward, change, made_up=False):
    """What is said of a net's own result, changed."""
    net, call = FloatNet(graph_of(forward)), Call("x", X, flat=made_up)
    wanted = net.run(call)
    given = Results([change(each.clone()) for each in wanted.outputs], {})
    net.reset()
    return difference(net, call, given, wanted)


@pytest.mark.parametrize(
    ("forward", "change"),
    [
        (lambda m, x: m.conv(x), lambda y: y),
        (lambda m, x: m.conv(x), lambda y: y * (1 + 2.0**-22)),
        (lambda m, x: torch.log(m.conv(x)), lambda y: y),
    ],
    ids=["the same", "a rounding of float32", "the same NaN"],
)
def test_what_is_no_difference(forward, change):
    assert told(forward, change) == ""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda y: torch.relu(y), "is off by up to"),
        (lambda y: y + 1e-3, "is off by up to"),
        (lambda y: y.to(torch.float16), "is float16 instead of float32"),
        (lambda y: y[:, :2], "has shape"),
        (lambda y: None, "is lost"),
        (lambda y: torch.where(y == y.max(), torch.nan, y), "is off by up to inf in 1 of"),
    ],
    ids=["lost-relu", "bias", "dtype", "shape", "lost", "nan"],
)
def test_anything_else_is_said(change, says):
    assert says in told(lambda m, x: m.conv(x), change)


def test_what_rounding_makes_large_is_allowed():
    """1e8 + x - 1e8 keeps a few bits of x, and which ones, rounding decides."""
    assert told(lambda m, x: (m.conv(x) + 1e5) - 1e5, lambda y: y + 0.0078125) == ""
    assert told(lambda m, x: (m.conv(x) + 1e5) - 1e5, lambda y: y + 2.0)


def test_integers_are_equal():
    assert "differs in 1 of" in told(lambda m, x: (m.conv(x) * 8).long(), lambda y: y + (y == y.max()))


def test_which_of_two_equal_values_is_the_largest_may_change():
    """Both channels are one; of a net whose channels differ the same change is said."""
    equal = lambda m, x: torch.stack((m.conv(x)[:, 0] * 3, m.conv(x)[:, 0] * 1.5 * 2), 1).argmax(1)  # noqa: E731
    assert told(equal, lambda y: 1 - y) == ""
    apart = lambda m, x: torch.stack((m.conv(x)[:, 0], m.conv(x)[:, 0] + 1), 1).argmax(1)  # noqa: E731
    assert "differs in 64 of 64" in told(apart, lambda y: 1 - y)


def test_another_number_of_outputs_is_said():
    net, call = FloatNet(graph_of(lambda m, x: (x, x))), Call("x", X)
    wanted = net.run(call)
    assert difference(net, call, Results(wanted.outputs[:1], {}), wanted) == "1 outputs instead of 2"


def test_what_is_close_or_empty_is_not_looked_at_twice(monkeypatch):
    monkeypatch.setattr(float_distance, "_moved", None)
    assert told(lambda m, x: m.conv(x), lambda y: y) == ""
    assert told(lambda m, x: m.conv(x)[:0], lambda y: y) == ""


@pytest.mark.parametrize(
    ("made_up", "change", "says"),
    [
        (True, lambda y: y.nan_to_num(7.0), ""),
        (False, lambda y: y.nan_to_num(7.0), "is off by up to inf"),
        (True, lambda y: y + 0.1, "is off by up to 0.1"),
    ],
    ids=["a number for NaN, made up", "a number for NaN", "a wrong number beside NaN, made up"],
)
def test_a_number_for_nan_is_none_on_inputs_that_are_made_up(made_up, change, says):
    found = told(lambda m, x: x.sqrt(), change, made_up=made_up)
    assert says in found
    assert bool(found) == bool(says)
