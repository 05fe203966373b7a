"""A stock check that raises refuses its node (``test_demotion.py``), but for a fatal error."""

import pytest
import torch
from executorch.exir.backend.utils import WhyNoPartitionReporter
from executorch.exir.dialects._ops import ops as exir_ops
from torch.fx import Graph
from torch.fx.passes.operator_support import OperatorSupport, OperatorSupportBase

from safe_arm import UsageError
from safe_arm._compat.stock_reasons import StockReasons
from safe_arm.core.partitioning_record import Partitioning, partitioning
from safe_arm.partitioner.proposal import Question
from safe_arm.partitioner.stock_checks import ContainedChecks, Registered


class Raises(OperatorSupportBase):
    def is_node_supported(self, submodules, node):
        raise UsageError("no")


def test_a_fatal_error_of_a_check_reaches_the_user():
    checks = ContainedChecks(Raises(), StockReasons(WhyNoPartitionReporter(), frozenset()))
    with pytest.raises(UsageError), partitioning(Partitioning(question=Question())):
        checks.is_node_supported({}, Graph().placeholder("x"))


def test_a_reason_given_after_a_check_is_not_the_check_s():
    reasons, node = StockReasons(WhyNoPartitionReporter(), frozenset()), Graph().placeholder("x")
    with partitioning(Partitioning(question=Question())):
        ContainedChecks(OperatorSupport(), reasons).is_node_supported({}, node)
    reasons.report_reject(node, "it is at the border")
    assert reasons.at_border == {node: ["it is at the border"]}


class Refuses(OperatorSupportBase):
    def __init__(self, reasons):
        self.reasons = reasons

    def is_node_supported(self, submodules, node):
        self.reasons.report_reject(node, "it is too large")
        return False


def test_a_reason_given_by_a_check_is_the_check_s():
    reasons, node = StockReasons(WhyNoPartitionReporter(), frozenset()), Graph().placeholder("x")
    with partitioning(Partitioning(question=Question())):
        assert not ContainedChecks(Refuses(reasons), reasons).is_node_supported({}, node)
    assert (reasons.by_checks, reasons.at_border) == ({node: ["it is too large"]}, {})


def test_an_operator_is_registered_as_that_of_aten_or_of_the_edge():
    edge = exir_ops.edge.aten.erfc.default
    graph = Graph()
    node = graph.call_function(edge, (graph.placeholder("x"),))
    with partitioning(Partitioning(question=Question())):
        for registered in (edge, torch.ops.aten.erfc.default):
            assert Registered({registered}).is_node_supported({}, node)
        assert not Registered({torch.ops.aten.erf.default}).is_node_supported({}, node)
