"""What the tests of spellings share: whether stock annotates an operator, and whether ours computes the same."""

from __future__ import annotations

import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import graph_of
from lowering import lower, min_max, quantize, tosa
from small import Lambda

from safe_arm import SafeArmPartitioner
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import call_functions, is_marked_quantized
from safe_arm.quantizer.spellings import spell_out_operators

#: Operators that conversion and the annotators put in, or that compute nothing.
_OTHERS = ("quantized_decomposed", "getitem", "_guards_fn")


def float_operators(rule, inputs, profile="TOSA-1.0+INT", **how):
    """The operators of a quantised graph that stay float, by their names."""
    quantised = quantize(Lambda(rule), inputs, tosa(profile), config=min_max(), **how)
    left = []
    for node in call_functions(quantised):
        name = str(node.target)
        if not is_marked_quantized(node) and not any(other in name for other in _OTHERS):
            left.append(name)
    return left


def stock_leaves_float(rule, inputs):
    """Tell whether stock leaves operators of a rule float, or dies of it."""
    left = attempted(float_operators, rule, inputs, quantizer_class=TOSAQuantizer)
    return isinstance(left, Caught) or bool(left)


def check_values(rule, inputs):
    """Check that the graph is changed, and that what is written computes the net."""
    model = graph_of(rule, *inputs)
    before = str(model.graph)
    expected = model(*inputs)
    spell_out_operators(model)
    assert str(model.graph) != before
    torch.testing.assert_close(model(*inputs), expected)


def check_whole(rules, inputs, profile):
    """Check that several rules together are one delegate that computes the quantised graph."""

    def all_of_them(m, *inputs):
        return [rule(m, *inputs) for rule in rules]

    graph_module = quantize(Lambda(all_of_them), inputs, tosa(profile), config=min_max())
    partitioner = SafeArmPartitioner(tosa(profile), verify=True)
    lower(graph_module, inputs, partitioner)
    assert partitioner.report.fallbacks == ()
    assert [each.exact for each in partitioner.report.verifications] == [True]
