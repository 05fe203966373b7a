"""A float net keeps its own state, and finds what it writes into."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from small import Lambda, image

from safe_arm.quantizer.float_net import Call, FloatNet, copy_with_own_state, results_of, state_kept, written_buffers

X = image()


class Stateful(nn.Module):
    def __init__(self, write):
        super().__init__()
        self.register_buffer("state", torch.zeros(4))
        self.register_buffer("table", torch.arange(4.0))
        self.write = write

    def forward(self, x):
        self.write(self, x.mean((0, 2, 3)))
        return x.mean((0, 2, 3)) + self.state + self.table


WRITES = {
    "copied": lambda m, x: m.state.copy_(x),
    "added-to": lambda m, x: m.state.add_(x),
    "a-part": lambda m, x: m.state[1:3].mul_(2),
    "assigned": lambda m, x: setattr(m, "state", m.state + x),
}


def graph(net):
    return torch.export.export(net, X).module(check_guards=False)


def test_what_is_written_into_is_found_however_it_is_written():
    assert {name: written_buffers(graph(Stateful(write))) for name, write in WRITES.items()} == dict.fromkeys(
        WRITES, ("state",)
    )


def test_what_is_only_read_is_no_state():
    constant = Lambda(lambda m, x: x + torch.tensor([1.0]))
    assert written_buffers(graph(constant)) == ()


def test_a_batch_norm_in_training_writes_its_statistics():
    norm = nn.BatchNorm2d(4)
    assert set(written_buffers(graph(norm.train()))) >= {"running_mean", "running_var"}
    assert written_buffers(graph(norm.eval())) == ()


def test_a_net_moves_its_own_state_and_can_be_reset():
    model = graph(Stateful(WRITES["added-to"]))
    net, call = FloatNet(model), Call("x", X)
    first, second = net.run(call), net.run(call)
    assert not torch.equal(first.outputs[0], second.outputs[0])
    assert torch.equal(second.state["state"], 2 * first.state["state"])
    assert not model.state.any()
    net.reset()
    assert torch.equal(net.run(call).outputs[0], first.outputs[0])


def test_weights_are_shared_and_state_is_not():
    model = graph(Stateful(WRITES["added-to"]))
    own = copy_with_own_state(model)
    assert own.table.data_ptr() == model.table.data_ptr()
    assert own.state.data_ptr() != model.state.data_ptr()


def test_state_is_put_back_whatever_happens():
    model = graph(Stateful(WRITES["added-to"]))
    with state_kept(model):
        model(*X)
        assert model.state.any()
    assert not model.state.any()


def test_inputs_stay_as_they_are_where_the_net_writes_into_them():
    def write(m, x):
        x.add_(1)
        return x * 2

    model = torch.export.export(Lambda(write), X).module(check_guards=False)
    before = X[0].clone()
    results_of(model, Call("x", X))
    assert torch.equal(X[0], before)


def test_a_flat_call_gives_what_a_call_gives():
    net = Lambda(lambda m, x: {"a": m.conv(x), "b": x})
    model = torch.export.export(net, X).module(check_guards=False)
    flat, whole = (results_of(model, Call("x", X, flat=each)).outputs for each in (True, False))
    assert len(flat) == 2
    assert all(torch.equal(one, other) for one, other in zip(flat, whole, strict=True))


def test_what_draws_random_numbers_is_told():
    def random(forward):
        return FloatNet(graph(Lambda(forward))).is_random()

    assert random(lambda m, x: x + torch.rand(4, 8, 8))
    assert random(lambda m, x: F.dropout(x, 0.5, training=True))
    assert not random(lambda m, x: F.dropout(x, 0.5, training=False))
    assert random(lambda m, x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5))
    assert not random(lambda m, x: F.scaled_dot_product_attention(x, x, x))


def test_a_net_on_meta_cannot_be_run():
    net = FloatNet(graph(Lambda(lambda m, x: m.conv(x))))
    assert net.cannot_run() == ""
    net.module.to("meta")
    assert "is on the meta device" in net.cannot_run()
