"""The stock pass that recurses along a graph gets through one of any depth in our delegates, and nowhere else."""

import sys
import threading
from collections import Counter
from contextvars import ContextVar

import pytest
import torch
from executorch.exir.pass_base import ExportPass
from interpreter import python
from lowering import PROFILES, RELEASE, delegates, lower, quantize, targets, tosa
from small import Residual, image
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.passes.infra.pass_base import PassResult

from safe_arm import SafeArmPartitioner
from safe_arm._compat import deep_graphs
from safe_arm._compat.upstream import TOSAPartitioner, exir_ops
from safe_arm.core.exceptions import Caught, attempted

pytestmark = pytest.mark.skipif(deep_graphs.RECURSIVE is None, reason="that pass came with 1.4")
OPERATORS = 3000


def ours():
    """The pass as our pass manager adds it."""
    return deep_graphs.in_threads(deep_graphs.RECURSIVE())


def between_permutes(operators):
    """A chain of operators with a permute before and its inverse behind, which the pass removes."""
    graph, edge = Graph(), exir_ops.edge.aten
    with FakeTensorMode():
        value = torch.empty(1, 4, 5, 6)
        node = graph.placeholder("x")
        node.meta["val"] = value
        turned = value.permute(0, 2, 3, 1)
        node = graph.call_function(edge.permute_copy.default, (node, [0, 2, 3, 1]))
        node.meta["val"] = turned
        for _ in range(operators):
            node = graph.call_function(edge.hardtanh.default, (node, -1.0, 1.0))
            node.meta["val"] = turned
        node = graph.call_function(edge.permute_copy.default, (node, [0, 3, 1, 2]))
        node.meta["val"] = value
    graph.output((node,))
    return GraphModule(torch.nn.Module(), graph)


def test_a_chain_of_thousands_is_visited_with_the_limit_as_it_is(monkeypatch):
    # The pass re-traces what it changed, which says nothing here and takes long.
    monkeypatch.setattr(ExportPass, "call", lambda self, module: PassResult(module, True))
    limit, during = sys.getrecursionlimit(), set()
    assert 8 * limit < 3 * OPERATORS
    permutable = deep_graphs.RECURSIVE.is_node_permutable

    def noting(self, node):
        during.add(sys.getrecursionlimit())
        return permutable(self, node)

    monkeypatch.setattr(deep_graphs.RECURSIVE, "is_node_permutable", noting)
    graph_module = between_permutes(OPERATORS)
    with pytest.raises(RecursionError):
        deep_graphs.RECURSIVE()(between_permutes(OPERATORS))
    result = ours()(graph_module)
    assert result.modified
    assert "permute_copy" not in targets(result.graph_module)
    assert during | {sys.getrecursionlimit()} == {limit}


def test_threads_see_the_context_and_hand_exceptions_on(monkeypatch):
    seen, variable = set(), ContextVar("variable")
    variable.set("set before")
    permutable = deep_graphs.RECURSIVE.is_node_permutable

    def failing(self, node):
        seen.add(variable.get(None))
        if node.name.endswith("_450"):
            raise KeyError("at the 450th")
        return permutable(self, node)

    monkeypatch.setattr(deep_graphs.RECURSIVE, "is_node_permutable", failing)
    with pytest.raises(KeyError, match="450th") as raised:
        ours().call(between_permutes(500))
    assert seen == {"set before"}
    held = [frame.frame.f_locals.get("node") for frame in raised.traceback]
    assert held[-1].name.endswith("_450"), "the frames of the threads are in the traceback"


def test_another_pass_is_left_as_it_is():
    other = ExportPass()
    before = dict(vars(other))
    assert deep_graphs.in_threads(other) is other
    assert vars(other) == before


THROUGH_C = """
import functools, sys
sys.path[:0] = {path!r}
import test_deep_graphs as t

def through_c(self, node):
    return functools.reduce(lambda _, more: through_c(self, more), [node], None)

t.deep_graphs.RECURSIVE.is_node_permutable = through_c
try:
    t.ours().call(t.between_permutes(5000))
except RecursionError:
    print("a RecursionError")
"""


def test_recursion_through_c_is_a_recursion_error_and_no_crash():
    script = THROUGH_C.format(path=[__file__.rpartition("/")[0], *sys.path])
    result = python("-c", script)
    assert (result.returncode, result.stdout) == (0, "a RecursionError\n"), result.stderr[-2000:]


@pytest.mark.full
@pytest.mark.skipif(RELEASE < (1, 5), reason="measured on 1.5.1")
def test_a_net_of_280_blocks_dies_in_stock_and_is_one_delegate_with_ours():
    graph_module = quantize(Residual(280).eval(), image(), tosa(PROFILES[0]))
    raised = attempted(lower, graph_module, image(), TOSAPartitioner(tosa(PROFILES[0])))
    assert isinstance(raised, Caught)
    assert "An error occurred" in str(raised.causes[-1])
    assert any(isinstance(cause, RecursionError) for cause in raised.causes)
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
    assert len(delegates(lower(graph_module, image(), partitioner))) == 1
    assert partitioner.report.demoted == ()


@pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 makes the recursive pass within another: nothing takes its place")
def test_no_pass_of_our_pipeline_recurses_deeper_in_one_thread(monkeypatch):
    # A propagation pass makes the recursive pass itself.
    graph_module = quantize(Residual(4).eval(), image(), tosa(PROFILES[0]))
    visit, depth, deepest = deep_graphs.RECURSIVE.visit, Counter(), Counter()

    def counted(self, *args):
        thread = threading.get_ident()
        depth[thread] += 1
        deepest[type(self)] = max(deepest[type(self)], depth[thread])
        try:
            return visit(self, *args)
        finally:
            depth[thread] -= 1

    monkeypatch.setattr(deep_graphs.RECURSIVE, "visit", counted)
    monkeypatch.setattr(deep_graphs, "LEVELS", 3)
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
    assert len(delegates(lower(graph_module, image(), partitioner))) == 1
    assert set(deepest.values()) == {3}
