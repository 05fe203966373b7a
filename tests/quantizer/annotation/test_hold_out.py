"""A held-out node is out of every pass's reach, and back in its place afterwards."""

import pytest
import torch
from graph_changes import graph_of
from lowering import targets
from small import image

from safe_arm._compat.upstream import ArmPass
from safe_arm.core.island import call_functions
from safe_arm.quantizer.annotation.hold_out import HeldOut, can_be_held_out, copy_of


class Doubling(ArmPass):
    """Re-traces, and puts a multiplication by 2 behind every operator it sees."""

    _passes_required_after = frozenset()

    def call_operator(self, op, args, kwargs, meta, updated=False):
        out = super().call_operator(op, args, kwargs, meta, updated)
        return super().call_operator(torch.ops.aten.mul.Tensor, (out, 2.0), {}, meta, updated)


def through(graph_module, *names):
    held = HeldOut(copy_of(graph_module), names)
    transformed = Doubling()(held.module).graph_module
    restored = held.restore(transformed)
    transformed.graph.lint()
    return transformed, restored


def test_one_node():
    graph_module = graph_of(lambda m, x: torch.sigmoid(torch.relu(x)) + x)
    transformed, restored = through(graph_module, "sigmoid")
    assert targets(transformed) == ["relu", "mul", "sigmoid", "add", "mul"]
    x = image()[0]
    assert torch.equal(transformed(x), (torch.sigmoid(torch.relu(x) * 2) + x) * 2)
    assert restored["sigmoid"].meta["val"].shape == x.shape


def test_parameters_and_tuples():
    def forward(m, x):
        a, b = torch.split(torch.conv2d(x, m.conv.weight, padding=1), 2, 1)
        return a, (b, x)

    graph_module = graph_of(forward)
    held = [node.name for node in call_functions(graph_module) if node.name.startswith(("conv", "split"))]
    transformed, _ = through(graph_module, *held)
    assert "mul" not in targets(transformed)
    torch.testing.assert_close(transformed(*image()), graph_module(*image()), rtol=0, atol=0)


def test_the_copy_shares_parameters_and_nothing_else():
    graph_module = graph_of(lambda m, x: m.conv(x))
    duplicate = copy_of(graph_module)
    assert duplicate.conv.weight is graph_module.conv.weight
    assert [n.name for n in duplicate.graph.nodes] == [n.name for n in graph_module.graph.nodes]
    assert not set(duplicate.graph.nodes) & set(graph_module.graph.nodes)
    duplicate.graph.output_node().meta["mine"] = 1
    assert "mine" not in graph_module.graph.output_node().meta


def test_what_cannot_be_held_out():
    graph_module = graph_of(lambda m, x: torch.relu(x).add_(1.0))
    allowed = [node.name for node in graph_module.graph.nodes if can_be_held_out(node)]
    assert allowed == ["relu"]
    for name in ("add_", "nobody"):
        with pytest.raises(ValueError, match=name):
            HeldOut(copy_of(graph_module), [name])


def test_a_narrowed_input_is_widened_again():
    graph_module = graph_of(lambda m, x: torch.relu(torch.argmax(x, 1)))
    held = HeldOut(copy_of(graph_module), ["relu"])
    narrowed = copy_of(held.module)
    argmax = next(n for n in narrowed.graph.nodes if n.name == "argmax")
    with narrowed.graph.inserting_after(argmax):
        cast = narrowed.graph.call_function(torch.ops.aten.to.dtype, (argmax, torch.int32))
    cast.meta["val"] = argmax.meta["val"].to(torch.int32)
    argmax.replace_all_uses_with(cast, delete_user_cb=lambda user: user is not cast)
    held.restore(narrowed)
    assert targets(narrowed) == ["argmax", "to", "to", "relu"]
    assert torch.equal(narrowed(*image()), graph_module(*image()))
