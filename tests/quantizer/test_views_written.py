"""A tensor with the elements of a view taken from another value is what writing into the view makes of it."""

import operator

import pytest
import torch
from graph_changes import graph_of

from safe_arm.quantizer.graph_edits import add_call
from safe_arm.quantizer.views_written import NotWritableError, written_back

WHOLE = torch.arange(60.0).view(3, 4, 5)
VIEWS = {
    "from the end": lambda x: x[:, -3:-1],
    "beyond the end": lambda x: x[:, 2:99],
    "the last": lambda x: x.select(-1, -1),
    "to the end": lambda x: x[1:],
    "all": lambda x: x[:],
    "nothing": lambda x: x[:, 2:2],
    "every other": lambda x: x[..., 1::2],
    "narrow": lambda x: x.narrow(2, 1, 3),
    "view": lambda x: x.view(12, 5),
    "flatten": lambda x: x.flatten(1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "transpose": lambda x: x.transpose(0, 2),
    "swapaxes": lambda x: x.swapaxes(-1, 0),
    "permute": lambda x: x.permute(1, 2, 0),
    "movedim": lambda x: x.movedim((0, 1), (2, 0)),
    "mT": lambda x: x.mT,
    "diagonal": lambda x: x.diagonal(1, 0, 2),
    "detach": lambda x: x.detach(),
}
SEVERAL = {
    "chunk": (lambda x: x.chunk(2, 2), 1),
    "split": (lambda x: x.split(3, 1), 1),
    "split of sizes": (lambda x: x.split([1, 2], 0), 1),
    "unbind": (lambda x: x.unbind(-1), 3),
}


def new_whole(view, index, value):
    """What ``written_back`` makes of a tensor, as a graph that is run."""
    model = graph_of(lambda m, x: view(x), WHOLE)
    graph = model.graph
    (x,) = graph.find_nodes(op="placeholder")
    (shown,) = [node for node in x.users if node.op == "call_function"]
    with graph.inserting_after(x):
        given = graph.placeholder("value")
    given.meta["val"] = shown.meta["val"] if index is None else shown.meta["val"][index]

    def make(target, *args, **kwargs):
        with graph.inserting_before(graph.output_node()):
            return add_call(graph, target, *args, **kwargs)

    made = written_back(make, shown, index, x, given)
    graph.output_node().args = (made,)
    graph.set_codegen(torch.fx.graph.CodeGen())
    model.recompile()
    return model.forward(WHOLE, value), graph


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_is_written_into(view):
    wanted = WHOLE.clone()
    value = -1 - view(WHOLE).clone()
    view(wanted).copy_(value)
    assert torch.equal(new_whole(view, None, value)[0], wanted)


@pytest.mark.parametrize(("views", "index"), SEVERAL.values(), ids=SEVERAL)
def test_one_of_several_is_written_into(views, index):
    wanted = WHOLE.clone()
    value = -1 - views(WHOLE)[index].clone()
    views(wanted)[index].copy_(value)
    assert torch.equal(new_whole(views, index, value)[0], wanted)


def test_a_part_is_joined_to_what_is_around_it():
    _, graph = new_whole(VIEWS["from the end"], None, torch.zeros(3, 2, 5))
    assert graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default)
    assert not graph.find_nodes(op="call_function", target=operator.getitem)


def test_there_is_no_way_back_from_an_unfold():
    with pytest.raises(NotWritableError, match="unfold"):
        new_whole(lambda x: x.unfold(2, 2, 2), None, torch.zeros(3, 4, 2, 2))
