"""The stock checks are asked one by one, and what they say is kept."""

import pytest
import torch
from executorch.backends.arm.operator_support import tosa_supported_operators
from executorch.backends.arm.tosa import partitioner as arm_partitioner
from executorch.exir.backend.utils import ReportRejected, WhyNoPartitionReporter
from executorch.exir.dialects._ops import ops as exir_ops
from prepared import prepared
from torch.fx.passes.operator_support import OperatorSupportBase, any_chain

from safe_arm import seams
from safe_arm._compat.annotations import mark_annotated
from safe_arm._compat.stock_reasons import StockReasons, guarded


def chain(*links):
    """As the Arm backend calls it."""
    seams.install()
    return tosa_supported_operators.chain(*links)


class Says(OperatorSupportBase):
    def __init__(self, reporter, *reasons):
        super().__init__()
        self.reporter, self.reasons = reporter, reasons

    def is_node_supported(self, submodules, node):
        for reason in self.reasons:
            self.reporter.report_reject(node, reason)
        return not self.reasons


def node():
    return torch.fx.Graph().placeholder("x")


def asked(make, x):
    stock = WhyNoPartitionReporter()
    reasons = StockReasons(stock, frozenset({"unsaid"}))
    reasons.support = make(reasons)
    reasons.ask_all([x], but=lambda check: False)
    return reasons, stock


#: Checks that say things to a reporter of one node, and what is kept of that; stock keeps the first.
CHECKS = {
    "a chain": (lambda r: chain(Says(r, "a"), Says(r), Says(r, "b", "a"), Says(r, "unsaid")), "ab"),
    "a chain in a chain": (lambda r: chain(chain(Says(r, "a"), Says(r, "b")), any_chain(Says(r, "c"), Says(r))), "abc"),
    # As ``tosa_support_factory`` returns it from 1.6 on, without overrides and with one.
    "no overrides": (lambda r: any_chain(chain(Says(r, "a"), Says(r), Says(r, "b"))), "ab"),
    "an override": (lambda r: any_chain(Says(r, "no override"), chain(Says(r, "a"), Says(r, "b"))), "ab"),
    "no chain": (lambda r: Says(r, "a"), "a"),
    "a check that raises": (lambda r: chain(Says(None, "raises"), Says(r, "a")), "a"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_is_asked(name):
    make, kept = CHECKS[name]
    x = node()
    reasons, stock = asked(make, x)
    assert reasons.by_checks == {x: list(kept)}
    assert stock._rejected_nodes == {x: "a"}


@pytest.mark.parametrize(
    ("operator", "dtype", "is_marked", "is_left_float"),
    [
        ("addmm", torch.float32, False, True),
        ("addmm", torch.float32, True, False),
        ("addmm", torch.int64, False, False),
        ("cumprod", torch.float32, False, False),
    ],
)
def test_the_float_form_of_what_is_quantised_as_others_is_said_not_to_be(operator, dtype, is_marked, is_left_float):
    x = node()
    x.meta["val"] = torch.ones(2, dtype=dtype)
    refused = x.graph.call_function(getattr(exir_ops.edge.aten, operator).default, (x,))
    if is_marked:
        mark_annotated(refused)
    unlisted = "Not included in BaseTOSASupportList or a registered tosa_support_check"
    reasons, stock = asked(lambda r: Says(r, unlisted), refused)
    assert ("quantized" in reasons.by_checks[refused][0]) == is_left_float
    assert stock._rejected_nodes == {refused: unlisted}


def test_a_report_has_every_reason_if_the_backend_returns_alternatives(monkeypatch):
    net = prepared(lambda m, x: m.conv(x).i0() + x)

    def reasons():
        report = net.partitioned(verify=False, preflight=False)
        return {verdict.name: verdict.reasons for verdict in report.verdicts}

    before = reasons()
    assert max(map(len, before.values())) > 1
    real = arm_partitioner.tosa_support_factory
    monkeypatch.setattr(arm_partitioner, "tosa_support_factory", lambda *a, **k: any_chain(real(*a, **k)))
    assert reasons() == before


def test_what_is_said_while_no_check_is_asked_is_the_border_s():
    x = node()
    reasons, _ = asked(lambda r: chain(Says(r)), x)
    reasons.report_reject(x, "first node")
    assert (reasons.by_checks, reasons.at_border) == ({}, {x: ["first node"]})


def test_a_wrapped_check_is_the_check():
    check = Says(None)
    assert guarded(ReportRejected(check, WhyNoPartitionReporter(), "")) is check
    assert guarded(check) is check


def test_dtypes_are_listed_in_one_order_for_us_and_as_ever_for_stock():
    x, said = node(), "has int4, not one of (torch.int8, torch.bool, torch.float32)."
    reasons, stock = asked(lambda r: Says(r, said, "takes torch.int8, not torch.bool"), x)
    kept = "has int4, not one of (torch.bool, torch.float32, torch.int8)."
    assert reasons.by_checks[x] == [kept, "takes torch.int8, not torch.bool"]
    assert stock._rejected_nodes[x] == said


@pytest.mark.parametrize(
    ("stride", "says"),
    [
        (4, "this has stride 4, padding 2 and dilation 1"),
        (3, "Failed condition on stride, pad and dilation combination."),
    ],
)
def test_a_stride_is_named(stride, says):
    x = node()
    convolution = x.graph.call_function(print, (x, x, None, [stride], [2], [1]))
    reasons = StockReasons(WhyNoPartitionReporter(), frozenset())
    reasons.report_reject(convolution, "Failed condition on stride, pad and dilation combination.")
    (found,) = reasons.at_border.get(convolution) or reasons.by_checks[convolution]
    assert found.endswith(says)
