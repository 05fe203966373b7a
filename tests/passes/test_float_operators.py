"""Operators that are inserted in the place of another."""

import math

import pytest
import torch
from lowering import edge_program
from small import Lambda

from safe_arm._compat.upstream import ArmPass, exir_ops
from safe_arm.passes.float_operators import FloatOperatorPass, FloatOperators

X = torch.tensor([-2.0, -0.5, 0.0, 0.5, 3.0])
INSTEAD = {
    "plus a number": (lambda make, x: make.plus(x, math.pi), X + math.pi),
    "plus a tensor": (lambda make, x: make.plus(x, x), X + X),
    "times a number": (lambda make, x: make.times(x, -1.0), -X),
    "times a tensor": (lambda make, x: make.times(x, make.scalar(2.0)), 2 * X),
    "above": (lambda make, x: make.where(make.above(x, 0.5), x, make.scalar(1.0)), X.where(X > 0.5, 1.0)),
    "below": (lambda make, x: make.where(make.below(x, 0.5), x, make.scalar(1.0)), X.where(X < 0.5, 1.0)),
}


class InPlaceOfErf(ArmPass):
    _passes_required_after = frozenset()

    def __init__(self, instead, program) -> None:
        super().__init__()
        self.instead, self.exported_program = instead, program

    def call_operator(self, op, args, kwargs, meta, updated=False):
        if op is not exir_ops.edge.aten.erf.default:
            return super().call_operator(op, args, kwargs, meta, updated)
        return self.instead(FloatOperators(self, meta), args[0])


@pytest.mark.parametrize("name", INSTEAD)
def test_each_computes_what_its_name_says(name):
    instead, expected = INSTEAD[name]
    program = edge_program(Lambda(lambda m, x: x.erf()), (X,))
    graph_module = InPlaceOfErf(instead, program)(program.graph_module).graph_module
    torch.testing.assert_close(graph_module(X)[0], expected)


class NegatesErf(FloatOperatorPass):
    """Writes each erf as a product with -1."""

    _passes_required_after = frozenset()

    def apart(self, make, op, args):
        return make.times(args[0], -1.0) if op is exir_ops.edge.aten.erf.default else None


@pytest.mark.parametrize(("qparams", "expected"), [({}, -X), ({0: "int8"}, X.erf())], ids=["float", "quantised"])
def test_a_pass_takes_operators_on_real_floats_apart_and_no_others(qparams, expected):
    program = edge_program(Lambda(lambda m, x: x.erf()), (X,))
    (erf,) = program.graph_module.graph.find_nodes(op="call_function", target=exir_ops.edge.aten.erf.default)
    erf.meta |= {"input_qparams": qparams, "output_qparams": qparams}
    negating = NegatesErf()
    negating.exported_program = program
    torch.testing.assert_close(negating(program.graph_module).graph_module(X)[0], expected)
