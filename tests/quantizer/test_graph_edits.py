"""Small steps that several corrections of a float graph share."""

import torch
from graph_changes import graph_of
from small import Lambda, image
from torch._subclasses.fake_tensor import FakeTensor

from safe_arm.core.island import graph_modules
from safe_arm.quantizer.graph_edits import Writer, add_call, add_constant, note_on, tensor_of, write_note

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


def test_the_branches_of_a_condition_are_graphs_too():
    def forward(m, x):
        return torch.cond(x.sum() > 0, torch.relu, torch.sigmoid, (x,))

    assert len(list(graph_modules(graph_of(forward)))) == 3


def test_a_note_is_beside_those_that_are_there():
    node = graph_of(lambda m, x: torch.relu(x)).graph.output_node()
    assert note_on(node, "mine") == ""
    node.meta["custom"] = {"theirs": 1}
    write_note(node, "mine", "text")
    assert note_on(node, "mine") == "text"
    assert node.meta["custom"]["theirs"] == 1


def test_what_is_written_bears_the_marks_of_the_operator_in_whose_place_it_is():
    model = graph_of(lambda m, x: torch.relu(x) + 1)
    relu = next(node for node in model.graph.nodes if node.op == "call_function")
    write = Writer(relu)
    absolute = write(ATEN.abs.default, relu.args[0])
    assert absolute < relu
    assert tensor_of(absolute).shape == (1, 4, 8, 8)
    assert {**absolute.meta, "val": None} == {**relu.meta, "val": None}
    assert write.size(relu, 3) == 8
    assert not write.picks(0)


def test_a_dynamic_size_is_a_node_that_reads_it():
    width = {3: torch.export.Dim("width", min=2, max=64)}
    net = Lambda(lambda m, x: torch.relu(x))
    model = torch.export.export(net, image(), dynamic_shapes=(width,)).module(check_guards=False)
    relu = next(node for node in model.graph.nodes if node.target is ATEN.relu.default)
    write = Writer(relu)
    assert write.size(relu, 2) == 8
    assert write.size(relu.args[0], 3).target is ATEN.sym_size.int
