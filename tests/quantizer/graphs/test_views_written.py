"""A tensor with the elements of a view taken from another value is what writing into the view makes of it."""

import operator

import pytest
import torch
from graph_changes import graph_of
from small import Lambda
from stubborn import exported

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


DYNAMIC = {
    "the first": lambda x: x[:, 0],
    "the last": lambda x: x[:, -1],
    "the second": lambda x: x[:, 1],
    "to the end": lambda x: x[:, 1:],
    "from the start": lambda x: x[:, :-1],
    "a part": lambda x: x[:, 1:2],
    "a part from the end": lambda x: x[:, -2:-1],
}
#: Around these, torch exports nothing: a part may be empty, or has two sizes of the net in it.
SCATTERED = {
    "every second": lambda x: x[:, ::2],
    "up to so many": lambda x: x[:, 1:3],
    "without the ends": lambda x: x[:, 1:-1],
    "nothing": lambda x: x[:, :0],
}
LENGTHS = ({1: torch.export.Dim("length", min=4, max=16)},)


def graph_of_a_length(view):
    def rule(m, x):
        whole = x * 2
        view(whole).mul_(-1)
        return whole

    return exported(Lambda(rule), (torch.rand(2, 8, 3),), LENGTHS), rule


@pytest.mark.parametrize("view", (DYNAMIC | SCATTERED).values(), ids=DYNAMIC | SCATTERED)
def test_a_view_of_a_dynamic_size_is_written_into_at_each(view):
    model, rule = graph_of_a_length(view)
    assert write_functionally(model) == []
    for length in (8, 4, 13):
        sample = torch.rand(2, length, 3)
        assert torch.equal(model(sample), rule(None, sample))
    assert ("scatter" in str(model.graph)) == (view in SCATTERED.values())
    torch.export.export(model, (torch.rand(2, 8, 3),), dynamic_shapes=LENGTHS)
