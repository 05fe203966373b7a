"""A stock check that raises refuses its node; the check of ours refuses what the plan refuses."""

import pytest
from executorch.exir.backend.utils import WhyNoPartitionReporter
from torch.fx import Graph
from torch.fx.passes.operator_support import OperatorSupportBase

from safe_arm import UsageError
from safe_arm._compat.stock_reasons import StockReasons
from safe_arm.core.partitioning_record import Partitioning, partitioning
from safe_arm.partitioner.checks import Refusal
from safe_arm.partitioner.plan import Plan
from safe_arm.partitioner.proposal import Question
from safe_arm.partitioner.stock_checks import ContainedChecks, RefusedByPlan

NODE, OTHER = (Graph().placeholder(name) for name in ("node", "other"))


class StockCheck(OperatorSupportBase):
    """Supports every node but one, on which it raises."""

    def __init__(self, error):
        self.error = error

    def is_node_supported(self, submodules, node):
        if node is NODE:
            raise self.error
        return True


def contained(error):
    return ContainedChecks(StockCheck(error), StockReasons(WhyNoPartitionReporter(), frozenset()))


def test_a_check_that_raises_refuses_its_node_and_says_so():
    checks = contained(RuntimeError("min() of an empty tensor"))
    with partitioning(Partitioning(question=Question())) as record:
        assert not checks.is_node_supported({}, NODE)
        assert checks.is_node_supported({}, OTHER)
    (refusal,) = record.question.refusals
    assert refusal.nodes == (NODE,)
    assert refusal.reason == "StockCheck fails when asked about it: RuntimeError: min() of an empty tensor"


def test_a_fatal_error_of_a_check_reaches_the_user():
    with pytest.raises(UsageError), partitioning(Partitioning(question=Question())):
        contained(UsageError("no")).is_node_supported({}, NODE)


def test_what_the_plan_refuses_is_refused():
    plan = Plan((Refusal("", "", (NODE,)),))
    with partitioning(Partitioning(question=Question(plan))):
        assert not RefusedByPlan().is_node_supported({}, NODE)
        assert RefusedByPlan().is_node_supported({}, OTHER)
