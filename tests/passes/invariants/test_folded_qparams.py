"""Folding Q and DQ into metadata keeps what they said."""

import pytest
import torch
from breaking import broken_by_mutation, broken_in, check_broken
from lowering import PROFILES, edge_program
from small import Lambda, image, marked, qdq
from torch.fx import Graph

from safe_arm import CORRECTIONS
from safe_arm._compat.upstream import FoldAndAnnotateQParamsPass, QuantArgs
from safe_arm.core.errors import InvariantError
from safe_arm.passes.invariants.folded_qparams import FoldedQParams, _check_inputs, _Claims
from safe_arm.passes.invariants.watch import Watch
from safe_arm.passes.record_element_qparams import ELEMENT_QPARAMS

FOLD = "FoldAndAnnotateQParamsPass"
#: Without the corrections that leave nothing to find.
UNCORRECTED = tuple(c for c in CORRECTIONS if c.name not in ("one-domain", "one-quantiser"))


@pytest.mark.parametrize(
    ("fault", "node", "says"),
    [
        ("input-zero-point", "aten_convolution_default", "reads argument 0 with scale"),
        ("operands-qparams-swapped", "aten_sub_tensor", "it was quantised with"),
        ("sum-output-zero-point", "aten_sum_dim_int_list", "is quantised with"),
        ("output-domain-of-the-input", "aten_sigmoid_default", "has output qparams"),
        ("matmul-zero-point", "aten_bmm_default", "reads argument 0"),
    ],
)
def test_red_for_a_fold_that_changes_qparams(fault, node, says):
    check_broken(broken_by_mutation(fault), "folded-qparams", FOLD, node, says)


def requantising(function, scale=0.02, zero_point=40):
    """x in one domain, through an operator, into another."""
    net = Lambda(lambda m, x: qdq(function(qdq(x, 1 / 128, 0)), scale, zero_point))
    return marked(net, image())


@pytest.mark.parametrize(
    "function", [lambda x: x.permute(0, 2, 3, 1), lambda x: torch.cat((x, x), 1)], ids=["permute", "cat"]
)
def test_an_operator_that_moves_codes_cannot_requantise(profile, function):
    """Stock folds the requantisation away; executorch#18999."""
    graph_module = requantising(function)
    error = broken_in(graph_module, image(), profile, corrections=UNCORRECTED)
    check_broken(error, "folded-qparams", FOLD, "cannot requantise, and goes from scale 0.0078125, zero point 0")


def test_red_where_a_float_joins_codes():
    program = edge_program(requantising(lambda x: torch.cat((x, x + x), 1)), image())
    watch = Watch((FoldedQParams,), program, program.graph_module)
    (fold,) = watch.watched([FoldAndAnnotateQParamsPass(program)])
    with pytest.raises(InvariantError, match="joins quantised and unquantised values in argument 0"):
        fold(program.graph_module)


def test_quiet_in_one_domain(profile):
    assert broken_in(requantising(lambda x: x.permute(0, 2, 3, 1), 1 / 128, 0), image(), profile) is None


def test_red_for_two_quantisers_that_disagree():
    def forward(m, x):
        value = qdq(x, 1 / 128, 0).permute(0, 2, 3, 1)
        return qdq(value, 1 / 128, 0), qdq(value, 1 / 64, 0)

    graph_module = marked(Lambda(forward), image())
    error = broken_in(graph_module, image(), PROFILES[1], corrections=UNCORRECTED)
    check_broken(error, "folded-qparams", FOLD, "aten_permute_copy_default is quantised with")


def test_red_for_the_argument_after_a_list_of_constants_in_domains_of_their_own():
    graph = Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.ops.aten.index.Tensor, ([x, x], x))
    one, other = (QuantArgs(scale, 0, -128, 127, torch.int8) for scale in (0.5, 0.25))
    node.meta = {"input_qparams": {0: one, 1: one}, ELEMENT_QPARAMS: {0: [one, other]}}
    _check_inputs(node, _Claims(node.target, {0: [one, other], 1: [one]}, []))
    with pytest.raises(InvariantError, match=r"reads argument 1 with scale 0\.5"):
        _check_inputs(node, _Claims(node.target, {0: [one, other], 1: [other]}, []))
