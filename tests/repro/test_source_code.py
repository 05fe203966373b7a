"""The source written for part of an edge graph computes what the graph computes, whatever its user wrote."""

import ast
import builtins
import keyword

import pytest
import torch
import torch.nn as nn
from lowering import edge_program, quantize, tosa
from small import Built, HandMadeIsland, Lambda, image, mark_quantised, qdq

from safe_arm.core.island import call_functions
from safe_arm.repro import source_code
from safe_arm.repro.source_code import Names, comment, literal

NASTY = ['""" + exit()', "'''", "a\nexit()", "a\rexit()", "\u2028exit()", "\\", "\x00\x0c\x1b", "\ud800"]
NASTY += ["# -*- coding"]


def loaded(text):
    """What a script defines."""
    scope = {"__name__": "script"}
    exec(compile(text, "script", "exec"), scope)
    return scope


class Kinds(nn.Module):
    """Every kind of argument and result: lists, dtypes, infinities, tuples, other strides, constants of all kinds."""

    def __init__(self):
        super().__init__()
        self.register_buffer("keyword.kwlist".replace(".", "_"), torch.arange(64.0).view(1, 1, 8, 8))
        self.register_buffer("train_", torch.rand(4, 4).t())
        self.constant = torch.tensor(2.5, dtype=torch.float64)
        self.weight = nn.Parameter(torch.rand(4, 4, 3, 3).to(memory_format=torch.channels_last))

    def forward(self, x):
        low, high = torch.split(x, 2, 1)
        values, _ = torch.max(x, 1)
        x = torch.nn.functional.conv2d(x, self.weight, padding=1).to(memory_format=torch.channels_last)
        x = torch.where(x > 0.5, float("-inf"), x) + self.keyword_kwlist + x.clone().to(torch.float64) * self.constant
        return torch.cat((low, high), 1), values, x.float(), x.sum((2, 3)).float() @ self.train_, torch.zeros_like(x)


def branches(m, x):
    return torch.cond(x.sum() > 0, lambda a: (a * 2).to(torch.int8).float(), lambda a: torch.relu(a) + 1, (x,))


NETS = {
    "kinds": Kinds,
    "branches": lambda: Built(branches),
    "hand-made": lambda: HandMadeIsland(nn.ReLU()),
    "quantised": lambda: quantize(Lambda(lambda m, x: m.linear(torch.relu(m.conv(x)))), image(), tosa("TOSA-1.0+INT")),
}


@pytest.mark.parametrize("net", NETS)
def test_the_source_computes_the_same(written, net):
    program = edge_program(NETS[net](), image())
    text, source = written(program)
    assert "edge__ops" not in text
    assert len(source.arguments) == 1
    unit = loaded(text)["Unit"]().eval()
    result = unit(*image())
    expected = program.module()(*image())
    if not isinstance(expected, tuple):
        result, expected = (result,), (expected,)
    order = list(program.graph.nodes)
    outputs = next(node for node in order if node.op == "output").args[0]
    in_graph_order = sorted(range(len(outputs)), key=lambda index: order.index(outputs[index]))
    for actual, index in zip(result, in_graph_order, strict=True):
        assert actual.dtype == expected[index].dtype
        assert torch.equal(actual, expected[index])


def operators_and_strides(program):
    """The operators of a program, and the strides of its weights of four dimensions."""
    weights = {k.replace(".", "_"): v for k, v in program.state_dict.items() if "weight" in k and v.dim() == 4}
    strides = {name: weight.stride() for name, weight in weights.items()}
    return [str(node.target) for node in call_functions(program.graph_module)], strides


@pytest.mark.parametrize("net", NETS)
def test_it_can_be_exported_again_to_the_same_operators(written, net):
    program = edge_program(NETS[net](), image())
    again = edge_program(loaded(written(program)[0])["Unit"]().eval(), image())
    assert operators_and_strides(again) == operators_and_strides(program)


def test_the_mark_of_the_quantisers_survives(written):
    net = HandMadeIsland(nn.ReLU())
    program = edge_program(mark_quantised(torch.export.export(net, image()).module()), image())
    text, source = written(program)
    assert source.marked
    scope = loaded(text)
    with scope["preserve_node_meta"]():
        again = torch.export.export(scope["Unit"]().eval(), image())
    operators = [node for node in again.graph.nodes if node.op == "call_function"]
    marked = {str(node.target): "_arm_annotation_info" in node.meta.get("custom", {}) for node in operators}
    assert marked == {name: not name.startswith("quantized_decomposed") for name in marked}


def test_the_user_s_lines_stand_above_what_they_made(written):
    lines = [line.strip() for line in written(edge_program(HandMadeIsland(nn.ReLU()), image()))[0].splitlines()]
    (at,) = [number for number, line in enumerate(lines) if line.startswith("convolution = ")]
    above = next(line for line in reversed(lines[:at]) if line.startswith("#"))
    assert above.startswith("# small.py:")
    assert "conv2d(qdq(x" in above


@pytest.mark.parametrize("nasty", NASTY)
def test_no_text_of_the_user_s_leaves_its_comment(written, nasty, monkeypatch):
    program = edge_program(Lambda(lambda m, x: qdq(m.conv(x), 0.1, 0)), image())
    plain, _ = written(program)
    monkeypatch.setattr(source_code, "source_line", lambda node: nasty)
    text, _ = written(program)
    assert text != plain
    assert comment(nasty).isprintable()
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(plain))
    text.encode()


@pytest.mark.parametrize(
    "wish", [*keyword.kwlist, *keyword.softkwlist, *NASTY, "", "3d", "__x", "self", "torch", "é", "sum"]
)
def test_names_are_harmless(wish):
    names = Names({"taken"})
    given = [names.new(wish) for _ in range(3)]
    assert len(set(given)) == 3
    for name in given:
        assert name.isidentifier()
        assert name.isascii()
        assert not keyword.iskeyword(name)
        assert not hasattr(builtins, name)
        assert not hasattr(nn.Module, name)
        assert not name.startswith("_")


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, -3, 1e-45, "a'\n", [1, (2,)], {"a": ()}, slice(1, None, 2), [float("inf"), -float("inf")]),
        *(torch.int8, torch.channels_last, torch.strided, torch.device("cpu")),
    ],
)
def test_literals_evaluate_to_themselves(value):
    assert eval(literal(value), {"torch": torch}) == value


def test_an_object_has_no_literal():
    with pytest.raises(ValueError, match="object has no source form"):
        literal(object())


def test_a_line_of_code_that_starts_like_a_frame_is_none(written):
    program = edge_program(Lambda(lambda m, x: m.conv(x)), image())
    (node,) = call_functions(program.graph_module)
    node.meta["stack_trace"] = '  File "net.py", line 3, in forward\n    File = x\n    ~~~~\n'
    assert "# net.py:3  File = x\n" in written(program)[0]
