"""Differences are held against what rounding does to the net: a lost operator is none of it, a tie is."""

import pytest
import torch
from graph_changes import graph_of
from small import image

from safe_arm.quantizer.proof import float_distance
from safe_arm.quantizer.proof.float_distance import difference
from safe_arm.quantizer.proof.float_net import Call, FloatNet, Results

X = image()


def told(forward, change, made_up=False, inputs=X):
    """What is said of a net's own result, changed."""
    net, call = FloatNet(graph_of(forward, *inputs)), Call("x", inputs, flat=made_up)
    wanted = net.run(call)
    given = Results([change(each.clone()) for each in wanted.outputs], {})
    net.reset()
    return difference(net, call, given, wanted)


def conv(m, x):
    return m.conv(x)


def few_bits(m, x):
    """Of x a few bits are kept, and which ones, rounding decides."""
    return (m.conv(x) + 1e5) - 1e5


#: A net, what is made of its result, and what is said of that.
CHANGES = {
    "the same": (conv, lambda y: y, ""),
    "a rounding of float32": (conv, lambda y: y * (1 + 2.0**-22), ""),
    "the same NaN": (lambda m, x: torch.log(m.conv(x)), lambda y: y, ""),
    "a lost relu": (conv, torch.relu, "is off by up to"),
    "bias": (conv, lambda y: y + 1e-3, "is off by up to"),
    "dtype": (conv, lambda y: y.to(torch.float16), "is float16 instead of float32"),
    "shape": (conv, lambda y: y[:, :2], "has shape"),
    "lost": (conv, lambda y: None, "is lost"),
    "a number beyond 2**100": (
        lambda m, x: m.conv(x).masked_fill(x[:, :1] > 0, -torch.inf), lambda y: y.clamp(min=-(2.0**100)), "",
    ),
    "a low number": (
        lambda m, x: m.conv(x).masked_fill(x[:, :1] > 0, -torch.inf), lambda y: y.clamp(min=-256), "is off by up to",
    ),
    "NaN": (conv, lambda y: torch.where(y == y.max(), torch.nan, y), "is off by up to inf in 1 of"),
    "what rounding makes large": (few_bits, lambda y: y + 0.0078125, ""),
    "what it does not": (few_bits, lambda y: y + 2.0, "is off by up to"),
    "what a norm makes large": (
        lambda m, x: torch.instance_norm(100 + x[..., :2, 0] / 1e3, None, None, None, None, True, 0.1, 1e-9, False),
        lambda y: y * (1 + 2.0**-13), "",
    ),
    "what it does not make so large": (
        lambda m, x: torch.instance_norm(x[..., :2, 0], None, None, None, None, True, 0.1, 1e-9, False),
        lambda y: y * (1 + 2.0**-10), "is off by up to",
    ),
    "integers": (lambda m, x: (m.conv(x) * 8).long(), lambda y: y + (y == y.max()), "differs in 1 of"),
    "which of two equal values is the largest": (
        lambda m, x: torch.stack((m.conv(x)[:, 0] * 3, m.conv(x)[:, 0] * 1.5 * 2), 1).argmax(1), lambda y: 1 - y, "",
    ),
    "which of two values is the largest": (
        lambda m, x: torch.stack((m.conv(x)[:, 0], m.conv(x)[:, 0] + 1), 1).argmax(1), lambda y: 1 - y,
        "differs in 64 of 64",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("forward", "change", "says"), CHANGES.values(), ids=CHANGES)
def test_what_rounding_explains_is_no_difference_and_anything_else_is_said(forward, change, says):
    found = told(forward, change)
    assert says in found
    assert bool(found) == bool(says)


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


def test_rounding_explains_it_also_where_the_inputs_are_nested():
    def nested(m, parts):
        return few_bits(m, parts["x"][0])

    inputs = ({"x": [X[0]]},)
    assert told(nested, lambda y: y + 0.0078125, inputs=inputs) == ""
    assert "is off by up to" in told(nested, lambda y: y + 2.0, inputs=inputs)
