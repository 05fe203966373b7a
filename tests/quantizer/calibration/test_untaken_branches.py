"""A branch that no sample takes is calibrated on what reaches its condition, and delegated with the rest."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import by_one_call, lower_exactly, tosa
from small import Lambda, image
from stubborn import exported, quantizer_of
from torch._higher_order_ops.while_loop import while_loop

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.errors import DoubtfulInputWarning
from safe_arm.quantizer.calibration.calibration_watch import CalibrationWatch
from safe_arm.quantizer.calibration.untaken_branches import Branches
from safe_arm.quantizer.proof.fidelity import decibel

ON_DEVICE = "TOSA-1.0+INT+cf"
UNTAKEN = "no calibration sample takes the"
#: A sample whose sum is positive, and one whose sum is not, of the same values but for their signs.
IMAGE = image()[0] - image()[0].mean() + 0.05
ONE, OTHER = (IMAGE,), (-IMAGE,)


def one_or_other(m, x):
    return torch.cond(x.sum() > 0, lambda x: (x * 0.2).relu(), lambda x: x.sigmoid() * 0.3, (m.conv(x),))


def nested(m, x):
    """No sample takes the branch that has two within, and none takes one of these two."""

    def inner(x):
        return torch.cond(x.mean() > -0.1, lambda x: x.tanh(), lambda x: x.sigmoid() * 3, (x,))

    return torch.cond(x.sum() > 0, lambda x: (x * 0.2).relu(), inner, (m.conv(x),))


def turned(m, x):
    """No sample enters the loop."""
    return while_loop(lambda x: x.sum() < 5, lambda x: (x.abs() * 0.5,), (x,))[0]


#: Each with a sample that takes what the other did not.
RULES = {"one or other": (one_or_other, OTHER), "nested": (nested, OTHER), "turned": (turned, (IMAGE - 0.04,))}


def quantised_on(rule, samples, quantizer_class=SafeTOSAQuantizer):
    quantizer = quantizer_of(quantizer_class, ON_DEVICE)
    with torch.no_grad():
        graph_module = by_one_call(quantizer, exported(Lambda(rule), samples[0]), samples)
    return graph_module, [each.reason for each in getattr(quantizer, "left_float", ())]


def ratio(graph_module, rule, other=OTHER):
    with torch.no_grad():
        expected = Lambda(rule)(*other)
        return decibel(float(expected.square().sum()), float((graph_module(*other) - expected).square().sum()))


def test_stock_makes_zeros_of_it():
    graph_module, _ = quantised_on(one_or_other, [ONE], TOSAQuantizer)
    assert ratio(graph_module, one_or_other) < 8


@pytest.mark.parametrize("name", RULES)
def test_ours_delegates_it_exactly_and_says_so(name):
    rule, other = RULES[name]
    with pytest.warns(DoubtfulInputWarning, match=UNTAKEN):
        graph_module, reasons = quantised_on(rule, [ONE])
    assert not reasons
    assert ratio(graph_module, rule, other) > 26
    lower_exactly(graph_module, tosa(ON_DEVICE), ONE, other)


def test_a_branch_that_a_sample_takes_has_its_samples_alone(recwarn):
    def rule(m, x):
        return torch.cond(x.amax() > 10, lambda x: x * 0.01, lambda x: (x * 5).abs(), (x,))

    graph_module, _ = quantised_on(rule, [ONE, (IMAGE * 100,), ONE])
    product = next(node for node in graph_module.false_graph_0.graph.nodes if "mul" in node.name)
    assert next(iter(product.users)).args[1] == pytest.approx(5 * float(IMAGE.max() - IMAGE.min()) / 255)
    assert not [each for each in recwarn if UNTAKEN in str(each.message)]


def test_what_fails_in_it_stays_float():
    def rule(m, x):
        return torch.cond(x.sum() > 0, lambda x: x * 0.5, lambda x: x.log() * 2, (x,))

    with pytest.warns(DoubtfulInputWarning, match=UNTAKEN):
        _, reasons = quantised_on(rule, [ONE])
    assert any("its values include NaN" in reason for reason in reasons)


class Sized(torch.nn.Module):
    """A branch that takes a dynamic size, and keeps it."""

    size = 0

    def forward(self, x, size):
        self.size = size
        return x


def test_an_operand_may_be_a_size():
    taken, untaken, watch = Sized(), Sized(), CalibrationWatch()
    Branches(["taken", "untaken"], [taken, untaken], watch)
    taken(torch.ones(3), 3)
    watch.take_all_branches()
    assert untaken.size == 3
