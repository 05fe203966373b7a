"""A re-trace takes numbers and nodes as they are, and asks stock about everything else."""

from operator import attrgetter

import pytest
import torch
from patches_of import patched
from small import Lambda, described, image
from spying import noted
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Proxy
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.fx.proxy import TracerBase
from torch.utils._pytree import tree_map_only

from safe_arm._compat.upstream import ExportPass, ProxyValue
from safe_arm.acceleration import fake_values, retraces
from safe_arm.acceleration.retraces import read, taken_plainly

LONG = list(range(-20, 21))


def tracer_and_calls():
    """A tracer of a pass that takes the shortcut, and what it asks stock about."""
    tracer = ExportPass.ExportTracer(ExportPass(), Graph()._codegen)
    tracer.fake_tensor_mode = FakeTensorMode(allow_non_fake_inputs=True)
    asked, stock = [], tracer.create_arg

    def create_arg(a):
        asked.append(a)
        return stock(a)

    tracer.create_arg = taken_plainly(create_arg)
    return tracer, asked


PLAIN = {"an int": 3, "a float": 0.5, "a bool": True, "a text": "same", "nothing": None, "a dtype": torch.int8}


@pytest.mark.parametrize("value", PLAIN.values(), ids=PLAIN)
def test_what_is_plain_is_what_stock_makes_of_it(value):
    tracer, asked = tracer_and_calls()
    taken = tracer.create_arg(value)
    assert asked == []
    assert taken is value
    assert type(tracer)(ExportPass(), Graph()._codegen).create_arg(value) is value


def test_the_value_of_a_node_is_that_node_wherever_it_stands():
    tracer, asked = tracer_and_calls()
    proxy = tracer.create_proxy("placeholder", "x", (), {})
    asked.clear()
    assert tracer.create_arg(proxy) is proxy.node
    assert asked == []
    joined = tracer.create_proxy("call_function", torch.ops.aten.cat.default, ([proxy, proxy], 1), {})
    assert joined.node.args == ([proxy.node, proxy.node], 1)
    assert joined.node.all_input_nodes == [proxy.node]


class OwnProxy(Proxy):
    """A proxy of somebody else's."""


@pytest.mark.parametrize("kind", ["a parameter", "a proxy of another class", "a tuple of another class"])
def test_the_near_miss_is_stock_s_to_decide(kind):
    tracer, asked = tracer_and_calls()
    node = tracer.graph.placeholder("x")
    values = {
        "a parameter": torch.nn.Parameter(torch.ones(1)),
        "a proxy of another class": OwnProxy(node, tracer),
        "a tuple of another class": torch.Size((2,)),
    }
    tracer.create_arg(values[kind])
    assert asked[0] is values[kind]


@torch.library.custom_op("safe_arm_test::weighted", mutates_args=())
def weighted(x: torch.Tensor, weights: list[float], other: list[float]) -> torch.Tensor:
    """An operator with two lists, one by keyword."""
    assert type(weights) is list
    return x * sum(weights) + sum(other)


@weighted.register_fake
def _(x, weights, other):
    assert type(weights) in (list, immutable_list)
    return torch.empty_like(x)


class Plain(ExportPass):
    """Hands every operator on."""


def program():
    weights = [float(value) for value in LONG]

    def forward(m, x):
        joined = torch.cat((torch.ops.safe_arm_test.weighted(x, weights, other=weights), x), 1)
        return joined.sum(dim=[1, 2], keepdim=True) + 1

    return torch.export.export(Lambda(forward), image()).graph_module


def test_stock_looks_at_every_number_of_a_list_and_ours_does_not(monkeypatch):
    module = program()
    looked_at = noted(monkeypatch, TracerBase, "create_arg")
    with patched(retraces):
        theirs = Plain()(module).graph_module
        stock = len(looked_at)
        looked_at.clear()
        with fake_values.remembered():
            ours = Plain()(module).graph_module
    assert described(ours) == described(theirs)
    assert stock - len(looked_at) >= 2 * len(LONG)


LISTS = {
    "numbers": (LONG, [0] * len(LONG)),
    "mixed": ([1, 2.0, True] * 10, [1.0, 2.0, True] * 10),
    "short": ([1, 2], [3, 4]),
    "nested": ([[1] * 20, [2] * 20], [[3] * 20]),
}


@pytest.mark.parametrize("lists", LISTS)
def test_arguments_keep_their_kinds(lists):
    tracer, _ = tracer_and_calls()
    first, second = LISTS[lists]
    arguments = (first, immutable_list(second), tuple(first))
    theirs = type(tracer)(ExportPass(), Graph()._codegen).create_arg(arguments)
    assert repr(tracer.create_arg(arguments)) == repr(theirs)
    assert [*map(type, tracer.create_arg(arguments))] == [*map(type, theirs)]


VALUE = ProxyValue(torch.ones(1), Proxy(Graph().placeholder("x")))
ARGUMENTS = {
    "a value": VALUE,
    "values in a list": [VALUE, 1, VALUE],
    "values in an immutable list": immutable_list([VALUE, None]),
    "values in a tuple in a list": [(VALUE, 2), [VALUE]],
    "by keyword": {"x": VALUE, "dim": [1, 2]},
    "by keyword, immutable": immutable_dict({"x": (VALUE,), "memory_format": torch.contiguous_format}),
    "numbers": immutable_list([1, 2.5, True]),
    "a size": torch.Size((1, 2)),
    "a tensor": torch.ones(()),
    "a slice": slice(1, None),
    "nothing": (),
}


@pytest.mark.parametrize("attribute", ["data", "proxy"])
@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_are_read_as_stock_reads_them(arguments, attribute):
    theirs = tree_map_only(ProxyValue, attrgetter(attribute), arguments)
    ours = read(arguments, attribute)
    assert repr(ours) == repr(theirs)
    assert type(ours) is type(theirs)


def test_numbers_of_another_kind_are_another_value():
    keys = [fake_values._key([kind(1) for _ in LONG], set()) for kind in (int, float, bool)]
    assert len({*keys}) == 3
