"""A long list of numbers goes through a re-trace in one piece and comes out as stock leaves it."""

import pytest
import torch
from patches_of import patched
from small import Lambda, described, image
from spying import noted
from torch.fx.proxy import TracerBase

from safe_arm._compat.upstream import ExportPass
from safe_arm.acceleration import fake_values, long_constants, retraces

LONG = list(range(-20, 21))
LISTS = {
    "numbers": (LONG, [0] * len(LONG)),
    "mixed": ([1, 2.0, True] * 10, [1.0, 2.0, True] * 10),
    "short": ([1, 2], [3, 4]),
    "nested": ([[1] * 20, [2] * 20], [[3] * 20]),
}


@torch.library.custom_op("safe_arm_test::weighted", mutates_args=())
def weighted(x: torch.Tensor, weights: list[float], other: list[float]) -> torch.Tensor:
    """An operator with two lists, one by keyword."""
    assert type(weights) is list
    return x * sum(weights) + sum(other)


@weighted.register_fake
def _(x, weights, other):
    assert type(weights) in (list, torch.fx.immutable_collections.immutable_list)
    return torch.empty_like(x)


class Plain(ExportPass):
    """Hands every operator on."""

    def call_operator(self, op, args, kwargs, meta):
        assert not any(isinstance(a, long_constants.Whole) for a in args)
        return super().call_operator(op, args, kwargs, meta)


@pytest.fixture
def looked_at(monkeypatch):
    """The arguments that a tracer looks at one by one; the patches are on."""
    seen = noted(monkeypatch, TracerBase, "create_arg")
    with patched(retraces):
        yield seen


def program(args=(LONG,), other=LONG):
    def forward(m, x):
        return torch.ops.safe_arm_test.weighted(x, *map(float_list, args), other=float_list(other)) + 1

    return torch.export.export(Lambda(forward), image()).graph_module


def float_list(values):
    return [float(value) for value in values]


def test_stock_looks_at_every_number_and_ours_does_not(looked_at):
    module = program()
    looked_at.clear()
    theirs = Plain()(module).graph_module
    stock = len(looked_at)
    looked_at.clear()
    with long_constants.whole(), fake_values.remembered():
        ours = Plain()(module).graph_module
    assert described(ours) == described(theirs)
    assert stock - len(looked_at) >= 2 * len(LONG)


@pytest.mark.parametrize("lists", LISTS)
def test_arguments_keep_their_kinds(lists):
    tracer = Plain().tracer
    ours = long_constants.taken_whole(tracer.create_arg)
    first, second = LISTS[lists]
    arguments = (first, torch.fx.immutable_collections.immutable_list(second), tuple(first))
    theirs = tracer.create_arg(arguments)
    with long_constants.whole():
        assert repr(ours(arguments)) == repr(theirs)
        assert [*map(type, ours(arguments))] == [*map(type, theirs)]


def test_numbers_of_another_kind_are_another_value(looked_at):
    modes = set()
    keys = [fake_values._key(long_constants.Whole(kind(1) for _ in LONG), modes) for kind in (int, float, bool)]
    assert len({*keys}) == 3
