"""Working out the domain of each value of a graph."""

import pytest
import torch
from torch.fx import Graph

from safe_arm._compat.upstream import QuantArgs, exir_ops
from safe_arm.core.errors import InvariantError
from safe_arm.passes.invariants.domains import domain_of, infer, same, shown

TOSA, EDGE = exir_ops.backend.tosa, exir_ops.edge.aten
X = (0.5, 3)


def graph_of(build):
    """A graph with one input x; the value of the last node."""
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.zeros(2, 2, dtype=torch.int8)

    def call(target, *args, dtype=torch.int8, **meta):
        node = graph.call_function(target, args)
        node.meta = {"val": torch.zeros(2, 2, dtype=dtype), **meta}
        return node

    last = build(call, x)
    return graph, last


def rescale(call, x, factors, zero_in, zero_out, dtype=torch.int8):
    return call(TOSA.RESCALE.default, x, dtype, factors, zero_in, zero_out, dtype=dtype)


def negating(call, x, scale):
    ins, outs = QuantArgs(0.5, 3, -128, 127, torch.int8), QuantArgs(scale, -4, -128, 127, torch.int8)
    return call(EDGE.neg.default, x, input_qparams={0: ins}, output_qparams={0: outs})


def squared(call, x):
    wide = rescale(call, x, [1.0], 3, 0, torch.int32)
    return call(EDGE.mul.Tensor, wide, wide, dtype=torch.int32)


#: A graph, the domain of its input, and that of its output.
DOMAINS = {
    "a rescale": (lambda call, x: rescale(call, x, [0.25], 3, -7), X, (2.0, -7)),
    "a rescale of the unknown": (lambda call, x: rescale(call, x, [0.25], 3, -7), None, None),
    "a cosine": (lambda call, x: call(EDGE.cos.default, x), X, None),
    "one domain joined": (lambda call, x: call(TOSA.CONCAT.default, [x, x], 0), X, X),
    "joined with the unknown": (lambda call, x: call(TOSA.CONCAT.default, [x, call(EDGE.cos.default, x)], 0), X, None),
    "moved": (lambda call, x: call(EDGE.permute_copy.default, call(EDGE.view_copy.default, x, [4]), [0]), X, X),
    "a product": (squared, X, (0.25, 0)),
    "a negation": (lambda call, x: negating(call, x, 0.5), X, (0.5, -4)),
}


@pytest.mark.parametrize("name", DOMAINS)
def test_the_domain_of_an_output(name):
    build, known, domain = DOMAINS[name]
    graph, last = graph_of(build)
    assert infer(graph, {} if known is None else {"x": known})[last] == domain


READS = r"reads scale 0\.5, zero point 3"
#: A graph whose domains do not meet, the domain of its input, and what is said.
APART = {
    "zero": (lambda call, x: rescale(call, x, [1.0], 0, 0), X, "takes zero point 0 off values whose zero point is 3"),
    "channels": (lambda call, x: rescale(call, x, [1.0, 2.0], 3, 0), X, "gives its channels scales from 0.25 to 0.5"),
    "cat": (lambda call, x: call(EDGE.cat.default, [x, rescale(call, x, [1.0], 3, 4)]), X, READS),
    "another step": (lambda call, x: negating(call, x, 0.25), X, "keeps the step of its input"),
    "another input": (lambda call, x: negating(call, x, 0.5), (0.5, 7), READS),
}


@pytest.mark.parametrize("name", APART)
def test_domains_that_do_not_meet(name):
    build, known, says = APART[name]
    graph, _ = graph_of(build)
    with pytest.raises(InvariantError, match=says):
        infer(graph, {"x": known})


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32], ids=["codes", "sums"])
def test_only_a_rescale_of_a_convolution_s_sums_must_land_in_its_output_qparams(dtype):
    """In a branch of control flow a RESCALE takes the codes of a convolution to the domain of all branches."""
    out = QuantArgs(0.25, 3, -128, 127, torch.int8)

    def build(call, x):
        weight = call(EDGE.view_copy.default, x, [2, 2])
        conv = call(EDGE.convolution.default, x, weight, dtype=dtype, output_qparams={0: out},
                    input_qparams=dict.fromkeys((0, 1), QuantArgs(*X, -128, 127, torch.int8)))  # fmt: skip
        return rescale(call, conv, [0.5], 3 if dtype == torch.int8 else 0, -7)

    graph, last = graph_of(build)
    if dtype == torch.int8:
        assert infer(graph, {"x": X})[last] == (0.5, -7)
    else:
        with pytest.raises(InvariantError, match=r"and the output qparams are scale 0\.25, zero point 3"):
            infer(graph, {"x": X})


def test_scales_agree_up_to_rounding():
    assert same((0.1, 0), (0.1 * (1 + 1e-9), 0))
    assert not same((0.1, 0), (0.1 * (1 + 1e-4), 0))
    assert not same((0.1, 0), (0.1, 1))
    assert same(((0.1, 0.1), 0), (0.1, 0))


def test_a_domain_in_words():
    assert shown(domain_of(QuantArgs(0.25, -3, -128, 127, torch.int8))) == "scale 0.25, zero point -3"
