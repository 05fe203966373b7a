"""What the tests of spellings share: whether stock annotates an operator, and whether ours computes the same."""

import warnings

from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, lower_safely, min_max, quantize, tosa
from rewriting import Rewriting
from small import Lambda

from safe_arm.core.errors import DemotionWarning
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import call_functions, is_marked_quantized
from safe_arm.quantizer.spellings.spellings import spell_out_operators

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


def left_on_the_cpu(quantised, inputs, profile="TOSA-1.0+INT"):
    """The operators that our partitioner leaves on the CPU, by their names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DemotionWarning)
        _, partitioner = lower_safely(quantised, inputs, tosa(profile))
    return [each.op for each in partitioner.report.fallbacks]


def check_one_exact(graph_module, inputs, spec):
    """Check that a quantised graph is one delegate that computes it, and nothing else."""
    _, partitioner = lower_safely(graph_module, inputs, spec, verify=True)
    assert partitioner.report.fallbacks == ()
    assert [each.exact for each in partitioner.report.verifications] == [True]


def check_whole(rule, inputs, profile):
    """Check that a rule is one delegate that computes the quantised graph."""
    graph_module = quantize(Lambda(rule), inputs, tosa(profile), config=min_max())
    check_one_exact(graph_module, inputs, tosa(profile))


class Whole(Rewriting):
    """Nets of which each is one delegate once a step has written them anew."""

    def test_ours_is_one_exact_delegate(self, written):
        check_whole(written, self.inputs, PROFILES[0])


class Delegated(Whole):
    """Nets of which stock leaves something on the CPU."""

    def test_stock_leaves_it_on_the_cpu(self, written):
        graph_module = quantize(Lambda(written), self.inputs, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer)
        assert left_on_the_cpu(graph_module, self.inputs)


class Spelling(Whole):
    """Nets with operators that no annotator of stock's knows."""

    step = staticmethod(spell_out_operators)

    def test_stock_leaves_it_float(self, written):
        assert stock_leaves_float(written, self.inputs)
