"""Small steps that several corrections of a float graph share."""

import torch
from graph_changes import graph_of
from torch._subclasses.fake_tensor import FakeTensor

from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    add_call,
    add_constant,
    depends_on_input,
    note_on,
    tensor_of,
    write_note,
)

ATEN = torch.ops.aten


def test_calls_and_constants_have_their_fake_values():
    model = graph_of(lambda m, x: torch.relu(x))
    relu = next(node for node in model.graph.nodes if node.op == "call_function")
    with model.graph.inserting_after(relu):
        flat = add_call(model.graph, ATEN.flatten.using_ints, relu, start_dim=2)
    with model.graph.inserting_after(flat):
        number = add_constant(model, "number", torch.tensor(2.0), relu.meta["val"])
    for node, shape in ((flat, (1, 4, 64)), (number, ())):
        assert isinstance(tensor_of(node), FakeTensor)
        assert tensor_of(node).shape == shape
    assert tensor_of(model.graph.output_node()) is None
    assert tensor_of(2.0) is None
    model.recompile()
    assert float(model.number) == 2.0
    assert [Writer(relu).stored(value) for value in (number, relu, 2.0)] == [model.number, None, None]


def test_a_note_is_beside_those_that_are_there():
    node = graph_of(lambda m, x: torch.relu(x)).graph.output_node()
    assert note_on(node, "mine") == ""
    node.meta["custom"] = {"theirs": 1}
    write_note(node, "mine", "text")
    assert note_on(node, "mine") == "text"
    assert node.meta["custom"]["theirs"] == 1


def test_a_value_depends_on_an_input_through_all_that_it_is_computed_of():
    model = graph_of(lambda m, x: m.linear.weight.abs() * (x + m.conv.bias.sum()))
    results = {node.name: depends_on_input(node) for node in model.graph.nodes if node.op != "output"}
    assert {name for name, depends in results.items() if depends} == {"x", "add", "mul"}
    assert {"abs_1", "sum_1"} <= results.keys()
    assert not depends_on_input(2.0)
