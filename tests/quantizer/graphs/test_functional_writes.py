"""What a net writes in place is there when it is quantised, in its outputs and in its state."""

import copy
import io
import warnings
from functools import partial
from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes, changes_once, graph_of
from lowering import PROFILES, quantize, targets, tosa
from rewriting import Correcting
from small import Built, Lambda
from stateful import assigned, stateful
from stubborn import exported, quantizer_of, trainable
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.errors import DoubtfulInputWarning
from safe_arm.core.island import call_functions
from safe_arm.quantizer.graphs.functional_writes import write_functionally

INPUTS = (torch.rand((2, 3, 4), generator=torch.Generator().manual_seed(0)) * 2 - 1,)


def into(*write):
    """Write over part of a value, then return it."""

    def rule(m, x):
        y = x * 2
        for each in write:
            each(y, x)
        return y

    return rule


def put(place, value):
    return lambda y, x: y.__setitem__(place, value(y, x) if callable(value) else value)


def built(m, x):
    y = torch.zeros(2, 3, 8)
    y[..., :4], y[..., 4:] = x, x * 2
    return y


def seen_later(m, x):
    """A view of before, read after the whole is written."""
    y = x * 2
    view = y[:, 1]
    y.add_(1)
    return view * 2


def viewed_after(m, x):
    """What is written through a transpose lies in memory as it did."""
    y = x * 2
    y.transpose(1, 2)[:1].sigmoid_()
    return (y * 1).view(-1)[:8] * 2


def viewed_after_turned(m, x):
    y = x.transpose(0, 2) * 2
    y[:1].sigmoid_()
    return (y * 1).permute(2, 1, 0).view(-1)[:8] * 2


def loaded(net, inputs):
    """An exported program that was saved: the noted values of a view and of its source share no memory."""
    file = io.BytesIO()
    torch.export.save(torch.export.export(net, inputs), file)
    file.seek(0)
    return torch.export.load(file)


def copied(m, x):
    """A reshape that copies is no view."""
    y = x * 2
    y.transpose(0, 1).reshape(-1).zero_()
    return y


WRITES = {
    "slice": into(put((..., slice(0, 2)), lambda y, x: x[..., 2:])),
    "number": into(put((slice(None), 0), 1.0)),
    "row": into(put((slice(None), -1), lambda y, x: x[:, 0])),
    "filled": into(lambda y, x: y[:, 0].fill_(x.amax())),
    "broadcast": into(put((slice(None), slice(1, 3)), lambda y, x: x[:1, :1])),
    "every other": into(put((..., slice(None, None, 2)), lambda y, x: x[..., 2:])),
    "sum": into(lambda y, x: y[:, 1].add_(x[:, 0], alpha=2)),
    "reshaped": into(lambda y, x: y.view(6, 4)[1:3].mul_(2)),
    "squeezed": into(lambda y, x: y[:, :1].squeeze(1).unsqueeze(-1).mul_(3)),
    "chunk": into(lambda y, x: y.chunk(2, 2)[1].mul_(2)),
    "split": into(lambda y, x: y.split([1, 3], -1)[1].sub_(0.5)),
    "unbound": into(lambda y, x: y.unbind(1)[2].neg_()),
    "transposed": into(lambda y, x: y.transpose(0, 2)[1].mul_(2)),
    "permuted": into(lambda y, x: y.permute(2, 0, 1)[0, 1].fill_(0.25)),
    "moved": into(lambda y, x: y.movedim(0, 2)[2].zero_()),
    "diagonal": into(lambda y, x: y.diagonal(0, 1, 2).fill_(0.5)),
    "activation": into(lambda y, x: y[..., 1:].relu_()),
    "masked": into(lambda y, x: y[:, 0].masked_fill_(x[:, 0] > 0, -0.5)),
    "one after another": into(
        put((..., 1), lambda y, x: y[..., 0] + 1), put((..., 2), lambda y, x: y[..., 1] * 2), lambda y, x: y.mul_(0.5)
    ),
    "a view of a view": into(lambda y, x: y[:, 1:][:, :1, 1:3].copy_(x[:, :1, :2])),
    "built": built,
    "seen later": seen_later,
    "viewed after": viewed_after,
    "viewed after, turned": viewed_after_turned,
    "reshaped in place": into(lambda y, x: y.unsqueeze_(0)[:, 0].mul_(0.3141), lambda y, x: y.squeeze_(0)),
}


# A number that is written by an operator that stays on the CPU is a delegate of a constant alone, which is demoted.
@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
class TestWrites(Correcting):
    step = staticmethod(write_functionally)
    inputs = INPUTS
    written = WRITES
    in_part = WRITES["transposed"], WRITES["diagonal"]
    kept: ClassVar = {
        "added": lambda m, x: (x * 2).add_(x) * 3,
        "a relu": lambda m, x: (x * 2).relu_(),
        "at indices": lambda m, x: (x * 2).index_put_((torch.tensor([0]),), x[:1]),
        "a copy": copied,
        "read": lambda m, x: (x * 2)[:, 1] + 1,
        "a state that is assigned": assigned,
    }
    tolerance: ClassVar = {"rtol": 0, "atol": 0}
    stock_is_off = 10
    ours_is_off = 3  # roundings of the input, of a value and of the output

    def case(self, row):
        return (stateful(row), (torch.ones(1, 4),)) if row is assigned else super().case(row)

    def test_nothing_is_written_and_nothing_lost(self, written):
        model = self.graph(written)
        assert write_functionally(model) == []
        model.graph.lint()
        assert not any(getattr(getattr(n.target, "_schema", None), "is_mutable", False) for n in model.graph.nodes)

    def test_of_a_near_miss_nothing_is_lost(self, kept):
        assert write_functionally(self.graph(kept)) == []

    def test_so_are_the_writes_of_a_program_that_was_loaded(self, written):
        model = loaded(*self.case(written)).module()
        wanted = model(*INPUTS)
        assert changes_once(write_functionally, model)
        torch.testing.assert_close(model(*INPUTS), wanted, rtol=0, atol=0)

    def test_of_a_near_miss_that_was_loaded_nothing_changes(self, kept):
        assert not changes(write_functionally, loaded(*self.case(kept)).module())


@pytest.mark.parametrize(
    ("rule", "name", "inputs"),
    [
        (lambda m, x, state: state.add_(x) * 2, "more_0", (torch.ones(1, 4), torch.full((1, 4), 0.5))),
        (lambda m, x: (x[:, 0].fill_(0.5), x * 2)[1], "x", INPUTS),
    ],
    ids=["whole", "view"],
)
def test_an_input_that_is_written_into_is_said_and_its_value_is_right(rule, name, inputs):
    net = Lambda(rule)
    with pytest.warns(DoubtfulInputWarning, match=f"into the input {name} is lost"):
        graph_module = quantize(net, copy.deepcopy(inputs), tosa(PROFILES[0]))
    assert (graph_module(*inputs) - net(*copy.deepcopy(inputs))).abs().max() < 0.05


def test_a_whole_input_that_is_written_into_stays_as_it_is_said():
    """One of upstream's tests finds the operator by its name; the value is right, and the input is lost either way."""
    model = graph_of(lambda m, x: x.index_copy_(0, torch.tensor([1]), torch.ones(1, 3, 4)) * 2, *INPUTS)
    assert not changes(write_functionally, model)
    assert write_functionally(model) == ["the input x"]


UNREAD = {
    "a count": (lambda m, x: (m.state.add_(1), x * 2)[1], torch.float32),
    "a whole count": (lambda m, x: (m.state.add_(1), x * 2)[1], torch.int64),
    "a decaying mean": (lambda m, x: (m.state.mul_(0.5).add_(x.mean()), x * 2)[1], torch.float32),
}


@pytest.mark.parametrize(("rule", "dtype"), UNREAD.values(), ids=UNREAD)
def test_a_state_that_only_the_next_call_reads_is_kept(rule, dtype):
    """The pass that rewrites arithmetic in place keeps a sum that nothing reads, and not the state."""
    samples = [(torch.full((1, 4), value),) for value in (1.0, -0.5, 0.75)]
    net = Built(rule, state=torch.zeros(1, dtype=dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DoubtfulInputWarning)
        graph_module = quantizer_of().quantize_with_submodules(exported(net, samples[0]), samples)
    for sample in samples:
        graph_module(*sample)
        net(*sample)
    assert (graph_module.get_buffer("state") - net.state).abs().max() < 0.02


def test_the_count_of_a_norm_stays_as_it_is_said():
    norm = torch.nn.BatchNorm2d(4).train()
    assert not changes(write_functionally, exported(norm, (torch.ones(2, 4, 2, 2),)))


def test_how_many_batches_a_norm_has_seen_is_left_alone():
    """Nobody reads it; were it quantised, torchao would not find the convolution that a norm follows in training."""
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).train()
    inputs = (torch.randn((2, 3, 8, 8), generator=torch.Generator().manual_seed(0)),)
    graphs = []
    for quantizer_class in (TOSAQuantizer, SafeTOSAQuantizer):
        prepared = trainable(copy.deepcopy(net), inputs, quantizer_class)
        prepared(*inputs)
        graphs.append(convert_pt2e(prepared))
    assert targets(graphs[0]) == targets(graphs[1])


def test_twice_equals_once_for_a_state():
    model = exported(stateful(lambda m, x: m.state.mul_(0.5).add_(x) * 2), (torch.ones(1, 4),))
    assert changes_once(write_functionally, model)
    assert write_functionally(model) == []


@pytest.mark.parametrize(
    "rule",
    [
        WRITES["number"],
        into(put((..., slice(0, 3)), 0.5), lambda y, x: y[1:].mul_(3), lambda y, x: y.select(0, -1).neg_()),
    ],
    ids=["beside it", "part of it"],
)
def test_a_dynamic_size_stays_one(rule):
    sizes = ({0: torch.export.Dim("batch", min=3, max=8)},)
    samples = [torch.rand((count, 3, 4), generator=torch.Generator().manual_seed(count)) for count in (5, 4, 7)]
    model = exported(Lambda(rule), (samples[0],), sizes)
    assert write_functionally(model) == []
    for sample in samples:
        assert torch.equal(model(sample), rule(None, sample))


def test_a_branch_keeps_what_it_writes():
    net = Lambda(lambda m, x: torch.cond(x.sum() > 0, partial(WRITES["number"], None), lambda x: x * 3.0, (x,)))
    inputs = (INPUTS[0] + 1,)
    model = exported(net, inputs)
    assert write_functionally(model) == []
    assert torch.equal(model(*inputs), WRITES["number"](None, *inputs))
    assert not any(str(node.target).startswith("aten.copy_") for node in call_functions(model))


def test_what_cannot_be_written_back_is_said():
    net = Lambda(into(lambda y, x: y.unfold(2, 2, 2)[..., 0].zero_()))
    with pytest.warns(DoubtfulInputWarning, match=r"into unfold.* is lost"):
        quantize(net, INPUTS, tosa(PROFILES[0]))


def test_what_is_read_by_its_old_name_is_what_was_written():
    """As a graph of other hands may have it; export reads what a write gives."""
    model = graph_of(lambda m, x: (x * 2).add_(1) * 3, *INPUTS)
    double, written, product = (node for node in model.graph.nodes if node.op == "call_function")
    product.replace_input_with(written, double)
    model.recompile()
    wanted = model(*INPUTS)
    assert write_functionally(model) == []
    assert torch.equal(model(*INPUTS), wanted)
    assert torch.equal(wanted, (INPUTS[0] * 2 + 1) * 3)
    assert not any(node.target is torch.ops.aten.add_.Tensor for node in model.graph.nodes)
