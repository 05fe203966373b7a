"""Ranges of values are never too narrow, and narrow enough to be of use."""

import math

import pytest
import torch
from lowering import edge_program
from proving import quantized
from small import Built, Lambda

from safe_arm.core.island import QParams, op_name
from safe_arm.core.programs import constants, placeholder_values
from safe_arm.core.ranges import ANYTHING, Range, Ranges
from safe_arm.verification.evaluation import Evaluation

FUNCTIONS = {
    "softmax": lambda x: torch.softmax(x, -1),
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, (8,)),
    "clamps": lambda x: torch.clamp(x, -0.5) * torch.clamp(x, max=0.25) + torch.nn.functional.hardtanh(x, -0.1, 0.2),
    "signs": lambda x: x.abs() * x + x.relu() - x * x,
    "images": lambda x: x.tanh() + x.sigmoid() * x.sin() - x.cos() + torch.exp(-x.abs()),
    "maxima": lambda x: torch.maximum(x.tanh(), x.sigmoid() - 0.5) * torch.maximum(x, x.sin()),
    "powers": lambda x: x.pow(2) * x.pow(3) + x.abs().pow(1.5) - (x.abs() + 1).pow(-3),
    "sums": lambda x: x.relu().sum(-1) - (-(x.abs())).sum(-1) + x.sum(-1) + x.mean(-1),
    "constants": lambda x: (x.sigmoid() * -3.0 + 4.0) * torch.tensor([-1.0, 2.0]).repeat(4),
    "views": lambda x: x.relu().reshape(4, 2).amax(0) - x.abs().permute(1, 0)[2:4].amin(0),
}


def ranges_of(program):
    return Ranges(lambda: constants(program, {**program.state_dict, **program.constants}))


def quantised(function):
    inputs = (torch.randn(1, 8, generator=torch.Generator().manual_seed(0)),)
    graph_module = quantized(Lambda(lambda m, x: function(x)), inputs, "TOSA-1.0+INT+int16", wide=True)
    return edge_program(graph_module, inputs)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_value_is_outside(name):
    program = quantised(FUNCTIONS[name])
    ranges, state = ranges_of(program), {**program.state_dict, **program.constants}
    for scale in (0.1, 1.0, 10.0):
        values = Evaluation(placeholder_values(program, state, (torch.randn(1, 8) * scale,)))
        values.run(program.graph.nodes)
        for node, value in values.values.items():
            low, high = ranges.of(node)
            assert low <= float(value.min()) + 1e-12, (op_name(node), low)
            assert high >= float(value.max()) - 1e-12, (op_name(node), high)


def of_last(function):
    """The range of the last codes, and where some values lie among them, unrounded."""
    program = quantised(function)
    (output,) = program.graph.output_node().all_input_nodes
    q = QParams.of(output)
    return ranges_of(program).of(output.args[0]), lambda value: value / q.scale + q.zero_point


@pytest.mark.parametrize(
    ("function", "least"),
    [(lambda x: x.abs() + 0.5, 0.5), (lambda x: x.tanh() + 2.0, 1.0), (lambda x: torch.clamp(x, 0.25, 0.5), 0.25)],
)
def test_ranges_are_narrow_enough(function, least):
    (low, _), code_of = of_last(function)
    assert abs(low - code_of(least)) <= 1, "the sum is rounded once, and the constant in it once"


def test_what_is_never_negative_begins_at_0():
    assert of_last(lambda x: (x * x).mean(-1))[0].low == 0
    assert of_last(lambda x: torch.exp(x).sum(-1))[0].low == 0
    assert of_last(lambda x: x.abs().pow(1.5))[0].low == 0
    assert of_last(lambda x: torch.maximum(x, x.sigmoid()))[0].low == 0


def test_an_odd_power_has_the_sign_of_its_base():
    assert of_last(lambda x: x.pow(3))[0].low < 0
    assert of_last(lambda x: x.abs().pow(3))[0].low == 0


def test_nothing_is_known_of_floats_that_come_from_outside():
    program = torch.export.export(Lambda(lambda m, x: (x * x, x.relu(), x + 1.0, torch.sort(x)[0])), (torch.ones(3),))
    ranges = ranges_of(program)
    square, positive, more, ordered = map(ranges.of, program.graph.output_node().args[0])
    assert square == positive == Range(0.0, math.inf)
    assert more == ordered == ANYTHING


def test_a_buffer_that_the_program_writes_is_no_constant():
    net = Built(lambda m, x: x + m.count.add_(m.step), count=torch.ones(1), step=torch.ones(1))
    program = torch.export.export(net, (torch.ones(1),)).run_decompositions({})
    assert [node.name for node in constants(program, program.state_dict)] == ["b_step"]


def test_a_chain_that_doubles_is_looked_at_once_a_node():
    def doubled(x):
        for _ in range(200):
            x = x + x
        return x

    program = torch.export.export(Lambda(lambda m, x: doubled(x)), (torch.ones(3),))
    assert Ranges().of(program.graph.output_node().args[0][0]) == ANYTHING


@pytest.mark.parametrize(
    "held",
    [torch.ones(0), torch.ones(2, dtype=torch.complex64), torch.tensor([1.0, math.nan]), torch.ones(2).to_sparse()],
    ids=["empty", "complex", "NaN", "sparse"],
)
def test_a_constant_that_has_no_ends_is_anything(held):
    program = torch.export.export(Lambda(lambda m, x: x + 1.0), (torch.ones(3),))
    placeholder, *_ = program.graph.find_nodes(op="placeholder")
    assert Ranges(lambda: {placeholder: held}).of(placeholder) == ANYTHING
    assert Ranges(lambda: {placeholder: torch.tensor([2, -1])}).of(placeholder) == (-1, 2)
