"""Evaluating in double gives what eager float32 gives, but exactly."""

import pytest
import torch
from lowering import edge_program
from small import Built, Q, image, qdq

from safe_arm.verification.evaluation import Evaluation, EvaluationError, evaluated, quantised_constants


def evaluation_of(net, inputs):
    program = edge_program(net, inputs)
    return program, evaluated(program, {**program.state_dict, **program.constants}, inputs)


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": (2, 3)}, {"padding": (1, 2)}, {"dilation": (2, 1), "padding": 2, "stride": 2, "bias": False}],
    ids=["plain", "stride", "padding", "all"],
)
def test_depthwise_convolutions_are_in_double(options):
    torch.manual_seed(0)
    net = torch.nn.Conv2d(4, 8, (3, 2), groups=4, **options)
    program, evaluation = evaluation_of(net, image())
    (output,) = program.graph_module.graph.output_node().args[0]
    expected = net.double()(image()[0].double())
    assert torch.allclose(evaluation.values[output], expected, rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def evaluated_program(small):
    return evaluation_of(small.graph_module, image())


def test_only_outputs_are_kept_whose_codes_equal_those_of_float32(evaluated_program, small):
    program, evaluation = evaluated_program
    computed = {node for node in evaluation.values if node.op == "call_function"}
    assert computed == set(program.graph_module.graph.output_node().all_input_nodes)
    (output,) = program.graph_module.graph.output_node().args[0]
    assert torch.equal(evaluation.values[output].float(), small.graph_module(*image()))


def test_an_operator_that_fails_is_named(evaluated_program):
    program, _ = evaluated_program
    with pytest.raises(EvaluationError, match="aten::convolution cannot be evaluated eagerly: RuntimeError"):
        evaluated(program, {**program.state_dict, **program.constants}, (torch.zeros(1, 3, 8, 8),))


def test_a_transposed_convolution_without_an_output_has_none():
    """PyTorch's of floats gives an empty tensor, its of doubles raises."""
    graph = torch.fx.Graph()
    x, weight = graph.placeholder("x"), graph.placeholder("weight")
    node = graph.call_function(torch.ops.aten.conv_transpose2d.input, (x, weight, None, [1, 1], [1, 1], [0, 0], 3))
    given = {x: torch.ones(1, 3, 4, 1), weight: torch.ones(3, 1, 2, 2)}
    evaluation = Evaluation(dict(given))
    evaluation.run([node])
    assert evaluation.values[node].shape == (1, 3, 3, 0)
    assert evaluation.values[node].dtype == torch.float64
    wrong = Evaluation({x: torch.ones(1, 2, 4, 1), weight: given[weight]})
    with pytest.raises(EvaluationError):
        wrong.run([node])


@pytest.mark.parametrize(
    ("dtype", "ties_up", "codes"),
    [(torch.float32, True, [-2, 0, 2]), (torch.float64, True, [-1, 1, 2]), (torch.float64, False, [-2, 0, 2])],
    ids=["an input", "computed", "computed, to even"],
)
def test_ties_of_what_is_computed_go_up_and_those_of_an_input_to_even(dtype, ties_up, codes):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(Q, (x, 1.0, 0, -128, 127, torch.int8))
    evaluation = Evaluation({x: torch.tensor([-1.5, 0.5, 1.5], dtype=dtype)}, ties_up=ties_up)
    evaluation.run([node])
    assert evaluation.values[node].tolist() == codes


def test_each_quantised_constant_is_known():
    weights = {"one": torch.tensor([0.26, -0.1]), "other": torch.tensor([0.7, 0.3])}
    net = Built(lambda m, x: qdq(x, 0.1, 0) + qdq(m.one, 0.05, 3) * qdq(m.other, 0.02, -1), **weights)
    program = edge_program(net, (torch.ones(2),))
    found = quantised_constants(program, {**program.state_dict, **program.constants})
    assert [codes.tolist() for codes in found.values()] == [[8, 1], [34, 14]]


def test_weights_that_are_quantised_at_run_time_have_their_codes():
    """As convert_pt2e(fold_quantize=False) leaves them, in a program that is lowered by ``to_backend``."""

    def quantised(m, x):
        domain = m.scales, m.zeros, 0, -127, 127, torch.int8
        codes = torch.ops.quantized_decomposed.quantize_per_channel(m.conv.weight, *domain)
        weight = torch.ops.quantized_decomposed.dequantize_per_channel(codes, *domain)
        return torch.nn.functional.conv2d(x, weight)

    parts = {
        "conv": torch.nn.Conv2d(4, 4, 3),
        "scales": torch.full((4,), 0.01),
        "zeros": torch.zeros(4, dtype=torch.int64),
    }
    net = Built(quantised, **parts)
    program, evaluation = evaluation_of(net, image())
    (output,) = program.graph_module.graph.output_node().args[0]
    assert torch.allclose(evaluation.values[output].float(), net(*image()), rtol=0, atol=1e-6)
    (codes,) = quantised_constants(program, {**program.state_dict, **program.constants}).values()
    assert codes.dtype == torch.int8
