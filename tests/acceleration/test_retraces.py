"""A re-trace takes numbers and nodes as they are, and asks stock about everything else."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Proxy

from safe_arm._compat.upstream import ExportPass
from safe_arm.acceleration.retraces import taken_plainly


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
