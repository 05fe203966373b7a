"""The stock checks are asked one by one, and what they say is kept."""

import torch
from executorch.backends.arm.operator_support import tosa_supported_operators
from executorch.backends.arm.tosa import partitioner as arm_partitioner
from executorch.exir.backend.utils import ReportRejected, WhyNoPartitionReporter
from prepared import prepared
from torch.fx.passes.operator_support import OperatorSupportBase, any_chain

from safe_arm import seams
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


class Raises(OperatorSupportBase):
    def is_node_supported(self, submodules, node):
        raise KeyError("val")


def node():
    return torch.fx.Graph().placeholder("x")


def asked(make, x):
    stock = WhyNoPartitionReporter()
    reasons = StockReasons(stock, frozenset({"unsaid"}))
    reasons.support = make(reasons)
    reasons.ask_all([x], but=lambda check: False)
    return reasons, stock


def test_a_chain_stops_at_the_first_and_we_do_not():
    x = node()
    reasons, stock = asked(lambda r: chain(Says(r, "a"), Says(r), Says(r, "b", "a"), Says(r, "unsaid")), x)
    assert reasons.by_checks == {x: ["a", "b"]}
    assert stock._rejected_nodes == {x: "a"}


def test_a_chain_in_a_chain_is_taken_apart_and_alternatives_are_asked_as_one():
    x = node()
    reasons, _ = asked(lambda r: chain(chain(Says(r, "a"), Says(r, "b")), any_chain(Says(r, "c"), Says(r))), x)
    assert reasons.by_checks == {x: ["a", "b", "c"]}


def test_a_chain_that_is_an_alternative_to_overrides_is_taken_apart():
    """As ``tosa_support_factory`` returns it from 1.6 on, without overrides and with one."""
    x = node()
    reasons, _ = asked(lambda r: any_chain(chain(Says(r, "a"), Says(r), Says(r, "b"))), x)
    assert reasons.by_checks == {x: ["a", "b"]}
    reasons, stock = asked(lambda r: any_chain(Says(r, "no override"), chain(Says(r, "a"), Says(r, "b"))), x)
    assert reasons.by_checks == {x: ["a", "b"]}
    assert stock._rejected_nodes == {x: "a"}


def test_a_report_has_every_reason_if_the_backend_returns_alternatives(monkeypatch):
    net = prepared(lambda m, x: m.conv(x).sort(1)[0] + x)

    def reasons():
        partitioner = net.partitioner(verify=False, preflight=False)
        partitioner.partition(net.program())
        return {verdict.name: verdict.reasons for verdict in partitioner.report.verdicts}

    before = reasons()
    assert max(map(len, before.values())) > 1
    real = arm_partitioner.tosa_support_factory
    monkeypatch.setattr(arm_partitioner, "tosa_support_factory", lambda *a, **k: any_chain(real(*a, **k)))
    assert reasons() == before


def test_a_check_that_is_no_chain_is_asked_whole():
    x = node()
    reasons, _ = asked(lambda r: Says(r, "a"), x)
    assert reasons.by_checks == {x: ["a"]}


def test_one_that_raises_does_not_stop_the_others():
    x = node()
    reasons, _ = asked(lambda r: chain(Raises(), Says(r, "a")), x)
    assert reasons.by_checks == {x: ["a"]}


def test_what_is_said_while_no_check_is_asked_is_the_border_s():
    x = node()
    reasons, _ = asked(lambda r: chain(Says(r)), x)
    reasons.report_reject(x, "first node")
    assert (reasons.by_checks, reasons.at_border) == ({}, {x: ["first node"]})


def test_a_wrapped_check_is_the_check():
    check = Says(None)
    assert guarded(ReportRejected(check, WhyNoPartitionReporter(), "")) is check
    assert guarded(check) is check
