"""A stock check that raises refuses its node (``test_demotion.py``), but for a fatal error."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner
from executorch.exir.backend.utils import WhyNoPartitionReporter
from lowering import lower, quantize
from small import Lambda
from torch.fx import Graph
from torch.fx.passes.operator_support import OperatorSupport, OperatorSupportBase

from safe_arm import SafeArmPartitioner, UsageError
from safe_arm._compat.stock_reasons import StockReasons
from safe_arm.core.partitioning_record import Partitioning, partitioning
from safe_arm.partitioner.proposal import Question
from safe_arm.partitioner.stock_checks import ContainedChecks


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


SAMPLER = Lambda(lambda m, x, grid: F.grid_sample(torch.relu(x), grid, align_corners=False))
INPUTS = torch.rand(1, 2, 6, 6), torch.rand(1, 6, 6, 2) * 2 - 1


@pytest.mark.filterwarnings("ignore:demoted")
def test_a_registered_operator_that_cannot_be_lowered_leaves_its_delegate():
    """VGF registers grid sampling; stock takes what is registered whatever is refused, so that trials never ended."""
    spec = VgfCompileSpec("TOSA-1.0+INT+FP")
    graph_module = quantize(SAMPLER, INPUTS, spec)
    with pytest.raises(Exception, match="An error occurred when running"):
        lower(graph_module, INPUTS, VgfPartitioner(spec))
    partitioner = SafeArmPartitioner(spec, verify=False)
    lower(graph_module, INPUTS, partitioner)
    (demoted,) = partitioner.report.demoted
    assert demoted.op == "aten::grid_sampler_2d"
    assert "aten::relu" in {each.op for each in partitioner.report.verdicts if each.delegate}
    assert torch.ops.aten.grid_sampler_2d.default in {op._op for op in partitioner._custom_partition_ops}


def test_a_registered_operator_is_delegated_where_nothing_refuses_it():
    spec = VgfCompileSpec("TOSA-1.0+FP")
    partitioner = SafeArmPartitioner(spec, preflight=False)
    exported = torch.export.export(SAMPLER.eval(), INPUTS)
    lower(exported.module(), INPUTS, partitioner)
    assert not partitioner.report.fallbacks
