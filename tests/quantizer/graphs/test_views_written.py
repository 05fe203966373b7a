"""A tensor with the elements of a view taken from another value is what writing into the view makes of it."""

import operator

import pytest
import torch
from graph_changes import graph_of

from safe_arm.quantizer.graphs.functional_writes import write_functionally

WHOLE = torch.arange(60.0).view(3, 4, 5)
VIEWS = {
    "from the end": lambda x: x[:, -3:-1],
    "beyond the end": lambda x: x[:, 2:99],
    "the last": lambda x: x.select(-1, -1),
    "to the end": lambda x: x[1:],
    "all": lambda x: x[:],
    "every second": lambda x: x[:, ::2],
    "nothing": lambda x: x[:, 2:2],
    "narrow": lambda x: x.narrow(2, 1, 3),
    "flatten": lambda x: x.flatten(1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "swapaxes": lambda x: x.swapaxes(-1, 0),
    "movedim": lambda x: x.movedim((0, 1), (2, 0)),
    "mT": lambda x: x.mT,
    "detach": lambda x: x.detach(),
    "split": lambda x: x.split(3, 1)[1],
}


def graph_and_inputs(view):
    """A graph that writes its second input into a view of its first one's double."""

    def rule(m, x, value):
        whole = x * 2
        view(whole).copy_(value)
        return whole

    value = -1 - view(WHOLE).clone()
    return graph_of(rule, WHOLE, value), (WHOLE, value)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_is_written_into(view):
    model, inputs = graph_and_inputs(view)
    wanted = model(*inputs)
    assert write_functionally(model) == []
    assert torch.equal(model(*inputs), wanted)
    assert "copy_" not in str(model.graph)


def test_a_part_is_joined_to_what_is_around_it():
    model, _ = graph_and_inputs(VIEWS["from the end"])
    write_functionally(model)
    assert model.graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default)
    assert not model.graph.find_nodes(op="call_function", target=operator.getitem)
