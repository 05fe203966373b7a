"""A delegate too large to verify is verified on smaller inputs, where its operators compute alike everywhere."""

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from lowering import PROFILES, edge_program, output_steps, quantize, tosa
from small import Lambda
from spying import raising

from safe_arm.core.island import call_functions
from safe_arm.core.macs import macs
from safe_arm.verification.crop import cropped
from safe_arm.verification.double import evaluate_in_double
from safe_arm.verification.evaluation import evaluated


class Local(nn.Module):
    """Every operator that is local in space: strides, windows, both kinds of resize, a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.down, self.deep = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.maximum, self.average = nn.MaxPool2d(2), nn.AvgPool2d(3, 2, 1)
        self.up, self.nearest = nn.ConvTranspose2d(8, 8, 2, stride=2), nn.Upsample(scale_factor=2)
        self.join = nn.Conv2d(16, 8, 1)
        self.eval()

    def forward(self, x):
        skip = torch.relu(self.down(x))
        low = self.average(self.maximum(torch.sigmoid(self.deep(skip))))
        low = F.interpolate(self.nearest(low), scale_factor=2.0, mode="bilinear")
        return self.join(torch.cat((low, skip), 1)) * 0.5 + self.up(self.maximum(F.hardswish(skip)))


def random(*shapes):
    return tuple(torch.randn(shape, generator=torch.Generator().manual_seed(0)) for shape in shapes)


def program_of(forward, *shapes):
    """The edge program of a net, all of it, as if it were one delegate."""
    return edge_program(Lambda(forward), random(*shapes))


def cost(program):
    return sum(map(macs, call_functions(program.graph_module)))


def evaluate(program, *inputs):
    evaluation = evaluated(program, {**program.state_dict, **program.constants}, inputs)
    return [evaluation.values[node] for node in program.graph_module.graph.output_node().args[0]]


@pytest.fixture(scope="module")
def local():
    """The quantised net, its program and the largest crop that costs a quarter."""
    inputs = random((1, 3, 48, 64))
    quantised = quantize(Local(), inputs, tosa(PROFILES[0]))
    program = edge_program(quantised, inputs)
    before = _contents(program)
    crop = cropped(program, cost(program) // 4)
    assert _contents(program) == before, "the program itself is not changed"
    return quantised, program, crop


def _contents(program):
    return [(node.name, str(node.args), str(node.meta.get("val"))) for node in program.graph.nodes]


def test_the_crop_computes_what_the_quantised_net_computes_on_smaller_inputs(local):
    quantised, _, crop = local
    assert crop.size == "24x32"
    x = torch.randn(1, 3, 24, 32)
    (ours,) = evaluate(crop.program, x)
    (promised,) = (node.meta["val"] for node in crop.program.graph_module.graph.output_node().args[0])
    assert promised.shape == ours.shape
    (step,) = output_steps(quantised)
    quantised = copy.deepcopy(quantised)
    evaluate_in_double(quantised)  # In float32 some values lie on the other side of the middle between two codes.
    assert int(((ours - quantised(x)).abs().max() / step).round()) == 0


def test_the_crop_is_the_largest_within_the_budget(local):
    _, program, crop = local
    budget = cost(program) // 4
    assert cost(crop.program) == budget
    smaller = cropped(program, budget - 1)
    assert smaller.size == "16x24"  # strides of 8 in all
    assert cost(smaller.program) < budget


def test_what_strides_leave_over_at_the_border_is_left_over_in_the_crop():
    program = program_of(lambda m, x: F.max_pool2d(torch.sigmoid(m.conv(x)), 3, 3), (1, 4, 32, 35))
    crop = cropped(program, cost(program) // 4)
    height, width = map(int, crop.size.split("x"))
    assert (height % 3, width % 3) == (32 % 3, 35 % 3)
    assert (height, width) != (32, 35)


def test_inputs_of_several_sizes_are_cropped_together():
    shapes = (1, 4, 32, 32), (1, 4, 16, 16)
    program = program_of(lambda m, x, y: torch.cat((F.interpolate(m.conv(y), scale_factor=2), x), 1), *shapes)
    crop = cropped(program, cost(program) // 4).program
    shapes = [tuple(n.meta["val"].shape) for n in crop.graph.nodes if n.name in crop.graph_signature.user_inputs]
    assert shapes == [(1, 4, 16, 16), (1, 4, 8, 8)]


@pytest.mark.parametrize(
    ("forward", "shape"),
    [
        pytest.param(lambda m, x: F.interpolate(m.conv(x), size=(64, 32)), (1, 4, 32, 16), id="a size is scaled"),
        pytest.param(lambda m, x: F.pad(m.conv(x), (3, 0, 1, 2)), (1, 4, 19, 19), id="padding stays as wide as it is"),
    ],
)
def test_sizes_that_a_graph_names(forward, shape):
    program = program_of(forward, (1, 4, 32, 32))
    crop = cropped(program, cost(program) // 4)
    (value,) = evaluate(crop.program, torch.randn(1, 4, 16, 16))
    assert (crop.size, tuple(value.shape)) == ("16x16", shape)


def test_channels_last_stays_channels_last():
    inputs = (torch.randn(1, 4, 16, 16).to(memory_format=torch.channels_last),)
    program = edge_program(Lambda(lambda m, x: m.conv(x)), inputs)
    crop = cropped(program, cost(program) // 4).program
    (x,) = (n.meta["val"] for n in crop.graph.nodes if n.name in crop.graph_signature.user_inputs)
    assert x.is_contiguous(memory_format=torch.channels_last)


GRID = torch.rand(1, 1, 32, 32)


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        (lambda m, x: torch.flatten(m.conv(x), 1), "aten::view_copy is not local in space"),
        (lambda m, x: m.conv(x).mean((2, 3)), "aten::mean is not local in space"),
        (lambda m, x: m.conv(x) + GRID, "aten::add takes a constant with a height or a width"),
        (lambda m, x: torch.cat((m.conv(x), x), 3), "aten::cat is not local in space"),
        (lambda m, x: torch.softmax(m.conv(x), 3), "is not local in space"),
        (lambda m, x: m.conv(x)[:, :, 4:], "aten::slice_copy is not local in space"),
        (
            lambda m, x: F.interpolate(m.conv(x), scale_factor=2, mode="bilinear", align_corners=True),
            "aten::upsample_bilinear2d with align_corners depends on the size",
        ),
        (lambda m, x: F.avg_pool2d(m.conv(x), 32), "no crop that keeps what strides leave over (32x32 at a time)"),
        (lambda m, x: F.avg_pool2d(m.conv(x), 24, 1), "is smaller than a window of aten::avg_pool2d"),
    ],
    ids=["view", "mean", "constant", "cat-width", "softmax", "slice", "align-corners", "whole", "window"],
)
def test_what_computes_something_else_on_smaller_inputs_is_not_cropped(forward, says):
    program = program_of(forward, (1, 4, 32, 32))
    crop = cropped(program, cost(program) // 4)
    assert crop.program is None
    assert crop.size == ""
    assert says in crop.reason


def test_inputs_without_space_are_not_cropped():
    program = program_of(lambda m, x: m.linear(x), (4, 8))
    assert cropped(program, 1).reason == "an input is not of shape (N, C, H, W)"


def test_an_operator_that_fails_on_a_crop_is_named_with_what_it_raises(monkeypatch):
    program = program_of(lambda m, x: m.conv(x), (1, 4, 32, 32))
    monkeypatch.setattr("safe_arm.verification.crop.called", raising(RuntimeError("no kernel for that size")))
    assert cropped(program, 1).reason == "aten::convolution fails on a crop: no kernel for that size"


def test_a_crop_may_be_a_single_pixel():
    program = program_of(lambda m, x: F.conv2d(x, torch.ones(4, 4, 1, 1)), (1, 4, 8, 8))
    assert cropped(program, 4 * 4).size == "1x1"
