"""Floats are divided by a counter, and multiplied with one, beyond the counts of the calibration too."""

from typing import ClassVar

import pytest
import torch
from lowering import PROFILES, by_one_call, lower_program, tosa
from rewriting import Rewriting
from small import Built, Lambda
from stepping import called
from stubborn import exported, quantizer_of

from safe_arm import SafeArmPartitioner
from safe_arm.quantizer.graphs.cast_counters import cast_counters

X = torch.linspace(-1, 1, 12).view(1, 3, 4)
COUNT = torch.tensor([3], dtype=torch.int32)

RULES = {
    "an inverse": lambda m, x, count: x * count.reciprocal(),
    "a product": lambda m, x, count: x * count,
    "the other way round": lambda m, x, count: count * x,
    "a wide integer": lambda m, x, count: x * count.long(),
    "a scalar": lambda m, x, count: x * count[0],
}


class TestCasts(Rewriting):
    step = staticmethod(cast_counters)
    inputs = (X, COUNT)
    written = RULES
    kept: ClassVar = {
        "a product of integers": lambda m, x, count: x + (count * count),
        "a number": lambda m, x, count: x + count * 0.5,
        "a condition": lambda m, x, count: x * (count > 2),
        "cast by the net": lambda m, x, count: x * count.float().reciprocal(),
        "a sum": lambda m, x, count: x + count,
    }

    def case(self, row):
        return Lambda(row), self.inputs


def net_of(rule):
    return Built(rule, count=torch.zeros(1, dtype=torch.int32), mean=torch.zeros(1, 3, 4))


def divided(m, x):
    m.count.add_(1)
    return x * 0.5 / m.count


def multiplied(m, x):
    m.count.add_(1)
    return x * 0.5 * m.count


def inverted(m, x):
    m.count.add_(1)
    return m.count / (x.abs() + 1)


def running_mean(m, x):
    m.count.add_(1)
    m.mean.add_((x - m.mean) / m.count)
    return m.mean * 0.5


NETS = {"divided": divided, "multiplied": multiplied, "inverted": inverted, "a running mean": running_mean}
#: Nets with an inverse of a counter, which a profile without floats leaves on the CPU.
INVERSES = ("divided", "a running mean")


def samples(count):
    return [(X * (1 - 0.005 * call),) for call in range(count)]


@pytest.mark.parametrize("name", NETS)
def test_what_a_profile_has_is_in_one_delegate_and_the_rest_refused(name, profile):
    net = net_of(NETS[name])
    quantised = by_one_call(quantizer_of(profile=profile), exported(net, samples(1)[0]), samples(8))
    partitioner = SafeArmPartitioner(tosa(profile))
    manager = lower_program(torch.export.export(quantised, samples(1)[0]), partitioner)
    report = partitioner.report
    left = [verdict.op for verdict in report.fallbacks]
    if name in INVERSES and profile == PROFILES[0]:
        assert left == ["dim_order_ops::_to_dim_order_copy", "aten::reciprocal"]
    else:
        assert left == []
        assert len(report.delegates) == 1
    assert report.demoted == ()
    assert all(each.verified and not each.apart_worst for each in report.verifications)
    program = manager.exported_program()
    wanted = [net(*sample).clone() for sample in samples(8)]
    given = [called(program, sample)[0] for sample in samples(8)]
    span = torch.stack(wanted).max() - torch.stack(wanted).min()
    # What is read, a factor and the result are rounded, in the running mean also a difference.
    assert float((torch.stack(given) - torch.stack(wanted)).abs().max()) <= 4 * float(span) / 255


def test_a_counter_goes_on_behind_the_calibration(profile):
    net = net_of(divided)
    quantised = by_one_call(quantizer_of(profile=profile), exported(net, samples(1)[0]), samples(8))
    for sample in samples(100):
        wanted = net(*sample)
        given = quantised(*sample)
    assert int(net.count) == 100
    # The inverse of 100 is 0.01, and its codes are 1 / 255 apart; the inverse of 8 would be 0.125.
    assert float((given - wanted).abs().max()) <= 2 / 255
