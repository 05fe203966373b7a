"""A delegate that computes little and costs two borders can stay outside."""

import pytest
import torch
from lowering import delegates, tosa
from prepared import prepared

from safe_arm import SafeArmPartitioner
from safe_arm.core.errors import UsageError


def apart(m, x):
    """A Bessel function is on the CPU: a delegate without MACs between two such, and one at each end of the net."""
    first = torch.sigmoid(x).i0()
    return torch.tanh(torch.sigmoid(first).i0())


def multiplied(m, x):
    first = x.flatten(2).i0()
    return (first @ first.transpose(1, 2)).i0()


def partitioned(rule, **options):
    return prepared(rule).partitioned(preflight=False, **options)


@pytest.mark.parametrize(("rule", "min_macs", "number"), [
    (apart, 0, 3), (apart, 1, 2), (multiplied, 0, 1), (multiplied, 1, 1), (multiplied, 10**9, 0),
])  # fmt: skip
def test_only_what_is_small_and_between_operators_outside_stays_there(rule, min_macs, number):
    report = partitioned(rule, min_macs=min_macs)
    assert len(report.delegates) == number
    refused = {verdict.reason for verdict in report.fallbacks if verdict.stage == "cost"}
    assert len(refused) == len(partitioned(rule).delegates) - number


def test_the_reason_has_the_figures():
    [refused] = [verdict for verdict in partitioned(apart, min_macs=1).fallbacks if verdict.stage == "cost"]
    assert (refused.op, refused.verdict) == ("aten::sigmoid", "refused")
    assert refused.reason.startswith("its delegate has 0 MACs, fewer than min_macs=1")


def test_what_is_left_is_exact():
    partitioner = prepared(apart).partitioner(min_macs=1)
    assert len(delegates(prepared(apart).lowered(partitioner))) == 2
    assert [each.exact for each in partitioner.report.verifications] == [True, True]


def test_a_negative_number_is_refused():
    with pytest.raises(UsageError, match="min_macs -1 is negative"):
        SafeArmPartitioner(tosa("TOSA-1.0+INT"), min_macs=-1)
