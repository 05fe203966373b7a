"""A float net keeps its own state, and finds what it writes into."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from graph_changes import graph_of
from small import Built, image
from stubborn import exported, quantizer_of

from safe_arm import UsageError
from safe_arm.quantizer.proof.float_net import (
    Call,
    FloatNet,
    copy_with_own_state,
    list_of_samples,
    results_of,
    written_buffers,
)

X = image()


def stateful(write):
    def forward(m, x):
        write(m, x.mean((0, 2, 3)))
        return x.mean((0, 2, 3)) + m.state + m.table

    return exported(Built(forward, state=torch.zeros(4), table=torch.arange(4.0)), X)


WRITES = {
    "copied": lambda m, x: m.state.copy_(x),
    "added-to": lambda m, x: m.state.add_(x),
    "a-part": lambda m, x: m.state[1:3].mul_(2),
    "assigned": lambda m, x: setattr(m, "state", m.state + x),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_is_written_into_is_found_however_it_is_written(write):
    assert written_buffers(stateful(write)) == ("state",)


@pytest.mark.parametrize(
    ("samples", "kind"),
    [([X[0]], "Tensor"), (X[0], "Tensor"), ([{"x": X[0]}], "dict")],
    ids=["a list", "all", "a dict"],
)
def test_a_sample_that_is_no_tuple_is_refused_with_what_to_give(samples, kind):
    model = exported(Built(lambda m, x: torch.relu(x)), X)
    with pytest.raises(UsageError, match=rf"calibration sample 0 is a {kind}; give a tuple .*, \(x,\) for a single"):
        quantizer_of().quantize_with_submodules(model, samples)


@pytest.mark.parametrize(
    ("samples", "says"),
    [(None, "the calibration samples are None; give a list"), ([(X[0].numpy(),)], "sample 0 has a NumPy array")],
    ids=["none", "array"],
)
def test_samples_that_no_net_takes_are_refused_before_anything_is_quantised(samples, says):
    model = exported(Built(lambda m, x: torch.relu(x)), X)
    with pytest.raises(UsageError, match=says):
        quantizer_of().quantize_with_submodules(model, samples)


def test_tuples_and_lists_in_any_iterable_are_samples():
    assert list_of_samples(iter([X, [X[0]]])) == [X, [X[0]]]


def test_a_batch_norm_in_training_writes_its_statistics_and_what_is_only_read_is_no_state():
    assert written_buffers(graph_of(lambda m, x: x + torch.tensor([1.0]))) == ()
    norm = nn.BatchNorm2d(4)
    assert set(written_buffers(exported(norm.train(), X))) >= {"running_mean", "running_var"}
    assert written_buffers(exported(norm.eval(), X)) == ()


def test_a_net_moves_its_own_state_can_be_reset_and_shares_its_weights():
    model = stateful(WRITES["added-to"])
    net, call = FloatNet(model), Call("x", X)
    first, second = net.run(call), net.run(call)
    assert not torch.equal(first.outputs[0], second.outputs[0])
    assert torch.equal(second.state["state"], 2 * first.state["state"])
    assert not model.state.any()
    net.reset()
    assert torch.equal(net.run(call).outputs[0], first.outputs[0])
    model = stateful(WRITES["added-to"])
    own = copy_with_own_state(model)
    assert own.table.data_ptr() == model.table.data_ptr()
    assert own.state.data_ptr() != model.state.data_ptr()


def test_inputs_stay_as_they_are_where_the_net_writes_into_them():
    def write(m, x):
        x.add_(1)
        return x * 2

    before = X[0].clone()
    results_of(graph_of(write), Call("x", X))
    assert torch.equal(X[0], before)


def test_a_flat_call_gives_what_a_call_gives():
    model = graph_of(lambda m, x: {"a": m.conv(x), "b": x})
    flat, whole = (results_of(model, Call("x", X, flat=each)).outputs for each in (True, False))
    assert len(flat) == 2
    assert all(torch.equal(one, other) for one, other in zip(flat, whole, strict=True))


@pytest.mark.parametrize(
    ("rule", "random"),
    [
        (lambda m, x: x + torch.rand(4, 8, 8), True),
        (lambda m, x: F.dropout(x, 0.5, training=True), True),
        (lambda m, x: F.dropout(x, 0.5, training=False), False),
        (lambda m, x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), True),
        (lambda m, x: F.scaled_dot_product_attention(x, x, x), False),
    ],
)
def test_what_draws_random_numbers_is_told(rule, random):
    assert FloatNet(graph_of(rule)).is_random() is random


def test_a_net_on_meta_cannot_be_run():
    net = FloatNet(graph_of(lambda m, x: m.conv(x)))
    assert net.cannot_run() == ""
    net.module.to("meta")
    assert "is on the meta device" in net.cannot_run()
