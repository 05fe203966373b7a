"""Operators are named as the user wrote them, whatever they were decomposed into."""

import io

import pytest
import torch
import torch.nn as nn
from lowering import edge_program, quantize, tosa

from safe_arm.core.island import op_name
from safe_arm.core.names import shown
from safe_arm.core.written import earlier_names, model_class, module_path, written


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c, self.act = nn.Conv2d(4, 4, 3, padding=1), nn.ReLU6()

    def forward(self, x):
        return torch.nn.functional.silu(self.act(self.c(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.d1, self.seq = Block(), nn.Sequential(nn.Conv2d(4, 4, 1), nn.SiLU())

    def forward(self, x):
        return torch.cat((torch.nn.functional.relu6(self.seq(self.d1(x))), x), 1).flatten(1)


EXPECTED = [
    "Conv2d d1.c (aten::convolution)",
    "ReLU6 d1.act (aten::hardtanh)",
    "aten::silu (aten::sigmoid) in d1",
    "aten::silu (aten::mul) in d1",
    "Conv2d seq.0 (aten::convolution)",
    "SiLU seq.1 (aten::sigmoid)",
    "SiLU seq.1 (aten::mul)",
    "aten::relu6 (aten::hardtanh)",
    "aten::cat",
    "aten::flatten (aten::view_copy)",
]


def names(program):
    computing = [n for n in program.graph.nodes if n.op == "call_function" and "quantized" not in str(n.target)]
    return [shown(op_name(node), written(node), module_path(node)) for node in computing]


@pytest.mark.parametrize("saved", [False, True], ids=["in memory", "from a file"])
def test_modules_and_operators_are_those_of_the_users_code(saved):
    net, inputs = Net().eval(), (torch.randn(1, 4, 8, 8),)
    if saved:
        torch.export.save(torch.export.export(net, inputs), file := io.BytesIO())
        file.seek(0)
        net = torch.export.load(file).module(check_guards=False)
    program = edge_program(quantize(net, inputs, tosa("TOSA-1.0+INT")), inputs)
    assert names(program) == EXPECTED
    assert model_class(program.graph.nodes) == "Net"


def test_a_float_program_is_named_too():
    inputs = (torch.randn(1, 4, 8, 8),)
    assert names(edge_program(Net().eval(), inputs)) == EXPECTED


def test_the_names_in_the_quantised_and_the_exported_graph_are_known():
    inputs = (torch.randn(1, 4, 8, 8),)
    graph_module = quantize(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Softmax(-1)), inputs, tosa("TOSA-1.0+INT"))
    quantised = {node.name for node in graph_module.graph.nodes}
    earlier = {node.name: earlier_names(node) for node in edge_program(graph_module, inputs).graph.nodes}
    assert earlier["aten_relu_default"] == ("relu",)
    assert earlier["aten_amax_default"] == ("amax", "softmax")
    assert quantised & {"amax", "softmax"} == {"amax"}


def test_a_node_without_history_has_its_own_name():
    node = torch.fx.Graph().call_function(torch.ops.aten.relu.default, ())
    assert earlier_names(node) == ()
    assert (module_path(node), written(node), model_class([node])) == ("", "", "")
    assert shown("aten::relu", "", "") == "aten::relu"
