"""What the tests of spellings share: whether stock annotates an operator, and whether ours computes the same."""

import warnings

from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, lower_safely, min_max, quantize, tosa
from prepared import Prepared
from rewriting import Rewriting
from small import Lambda

from safe_arm.core.errors import DemotionWarning
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import call_functions, is_marked_quantized
from safe_arm.quantizer.spellings.composites import take_composites_apart
from safe_arm.quantizer.spellings.spellings import spell_out_operators

#: Operators that conversion and the annotators put in, or that compute nothing.
_OTHERS = ("quantized_decomposed", "getitem", "_guards_fn")


def float_operators(net, inputs, profile="TOSA-1.0+INT", **how):
    """The operators of a quantised net that stay float, by their names."""
    quantised = quantize(net, inputs, tosa(profile), config=min_max(), **how)
    left = []
    for node in call_functions(quantised):
        name = str(node.target)
        if not is_marked_quantized(node) and not any(other in name for other in _OTHERS):
            left.append(name)
    return left


def left_on_the_cpu(quantised, inputs, profile="TOSA-1.0+INT"):
    """The operators that our partitioner leaves on the CPU, by their names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DemotionWarning)
        _, partitioner = lower_safely(quantised, inputs, tosa(profile))
    return [each.op for each in partitioner.report.fallbacks]


def refused(quantised, inputs, profile="TOSA-1.0+INT"):
    """The operators that no delegate takes, by their names, told without lowering one."""
    return [each.op for each in Prepared(None, profile, inputs, quantised).partitioned(preflight=False).fallbacks]


def check_one_exact(graph_module, inputs, spec):
    """Check that a quantised graph is one delegate that computes it, and nothing else."""
    _, partitioner = lower_safely(graph_module, inputs, spec, verify=True)
    assert partitioner.report.fallbacks == ()
    assert [each.exact for each in partitioner.report.verifications] == [True]


def check_whole(rule, inputs, profile):
    """Check that a rule is one delegate that computes the quantised graph."""
    graph_module = quantize(Lambda(rule), inputs, tosa(profile), config=min_max())
    check_one_exact(graph_module, inputs, tosa(profile))


def spell_out(model):
    """The two steps that write operators with others, in their order."""
    take_composites_apart(model)
    spell_out_operators(model)


class Whole(Rewriting):
    """Nets of which each is one delegate once a step has written them anew.

    Attributes:
        lowered: the names of those that are lowered; all if not said.
    """

    step = staticmethod(spell_out)
    lowered = ()

    @property
    def proven(self):
        return {name: self.written[name] for name in self.lowered or self.written}

    def test_ours_is_one_exact_delegate(self, proven):
        net, inputs = self.case(proven)
        check_one_exact(quantize(net.eval(), inputs, tosa(PROFILES[0]), config=min_max()), inputs, tosa(PROFILES[0]))


class Delegated(Whole):
    """Nets of which stock leaves something on the CPU, or dies."""

    def test_stock_leaves_it_on_the_cpu(self, wrong):
        net, inputs = self.case(wrong)
        stock = attempted(quantize, net, inputs, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer, config=min_max())
        assert isinstance(stock, Caught) or refused(stock, inputs) or left_on_the_cpu(stock, inputs)


class Spelling(Whole):
    """Nets with operators that no annotator of stock's knows."""

    def test_stock_leaves_it_float(self, wrong):
        left = attempted(float_operators, *self.case(wrong), quantizer_class=TOSAQuantizer)
        assert isinstance(left, Caught) or left
