"""Small steps that several corrections of a float graph share."""

import torch
from graph_changes import graph_of
from torch._subclasses.fake_tensor import FakeTensor

from safe_arm.quantizer.graphs.graph_edits import (
    add_call,
    add_constant,
    depends_on_input,
    rewrite,
    stored_tensor,
    tensor_of,
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
    assert [stored_tensor(value) for value in (number, relu, 2.0)] == [model.number, None, None]


def test_a_value_depends_on_an_input_through_all_that_it_is_computed_of():
    model = graph_of(lambda m, x: m.linear.weight.abs() * (x + m.conv.bias.sum()))
    results = {node.name: depends_on_input(node) for node in model.graph.nodes if node.op != "output"}
    assert {name for name, depends in results.items() if depends} == {"x", "add", "mul"}
    assert {"abs_1", "sum_1"} <= results.keys()
    assert not depends_on_input(2.0)


def test_what_a_rewriting_leaves_behind_is_erased_if_it_says_so():
    def read_before(relu):
        """Let a relu read what its argument is computed of, which leaves that argument behind for one of two."""
        leaves_dead_code = relu.args[0].target == ATEN.abs.default
        relu.args = relu.args[0].args
        return leaves_dead_code

    model = graph_of(lambda m, x: (x.abs().relu(), (y := x.neg()).relu(), y))
    rewrite(model, read_before, ATEN.relu.default)
    names = [node.name for node in model.graph.nodes if node.op == "call_function"]
    assert names == ["relu", "neg", "relu_1"]
