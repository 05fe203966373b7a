"""A graph sorted where it is, is the graph stock copies; a cut costs what its delegate does."""

import itertools
import logging
import operator
import random

import pytest
import torch
from executorch.exir import lowered_backend_module
from executorch.exir.dialects._ops import ops as exir_ops
from patches_of import patched
from torch.fx import Graph, GraphModule

from safe_arm.acceleration import delegate_cuts, late_code
from safe_arm.acceleration.shortcuts import taking

ADD = exir_ops.edge.aten.add.Tensor


@pytest.fixture
def cutting():
    """Patches installed, and on, as while a delegate of ours is cut out."""
    stock = lowered_backend_module.legalize_graph
    with patched(delegate_cuts, late_code), delegate_cuts.cheap():
        yield stock
    assert stock == lowered_backend_module.legalize_graph


def shuffled(seed, target=ADD):
    """A graph of binary operators whose nodes stand in no order, with gaps in its names."""
    rng = random.Random(seed)
    graph = Graph()
    nodes = [graph.placeholder(name) for name in ("x", "x_2", "weight")]
    for index in range(30):
        nodes.append(graph.call_function(target, (rng.choice(nodes), rng.choice(nodes[-8:]))))
        nodes[-1].meta["val"] = index
    graph.output((nodes[-1],))
    for node in [node for node in reversed(graph.nodes) if not node.users and node.op == "call_function"]:
        graph.erase_node(node)
    moved = [node for node in graph.nodes if node.op == "call_function"]
    for node in rng.sample(moved, 8):
        rng.choice(moved).append(node)
    for node in graph.nodes:
        users = list(node.users)
        rng.shuffle(users)
        node.users.clear()
        node.users.update(dict.fromkeys(users))
    return GraphModule(torch.nn.Module(), graph)


def described(module):
    """All that can be told of a graph, and the names it gives next."""
    graph = module.graph
    nodes = [(n.name, n.op, n.target, str(n.args), [u.name for u in n.users], n.meta) for n in graph.nodes]
    keys = list(itertools.pairwise(node._sort_key for node in graph.nodes))
    found = [node.name for node in graph.find_nodes(op="call_function", target=ADD)]
    fresh = [graph.call_function(ADD, ()).name for _ in range(3)] + [graph.placeholder("x").name]
    return nodes, all(a < b for a, b in keys), found, fresh


@pytest.mark.parametrize("seed", range(20))
def test_a_graph_sorted_in_place_is_the_one_stock_copies(cutting, seed):
    stock = cutting
    ours, theirs = shuffled(seed), shuffled(seed)
    graph = ours.graph
    assert lowered_backend_module.legalize_graph(ours) is ours
    assert ours.graph is graph
    assert described(ours) == described(stock(theirs))
    graph.lint()


def test_assertions_and_sizes_go_first_as_in_stock(cutting):
    stock = cutting
    ours, theirs = shuffled(0, operator.add), shuffled(0, operator.add)
    assert described(lowered_backend_module.legalize_graph(ours)) == described(stock(theirs))


def test_a_cycle_is_refused_as_stock_refuses_it(cutting):
    module = shuffled(1)
    first, *_, last = module.graph.find_nodes(op="call_function", target=ADD)
    first.args = (last, last)
    with pytest.raises(RuntimeError, match="cycles"):
        lowered_backend_module.legalize_graph(module)


def test_code_for_the_log_is_written_if_the_log_is_read(cutting, monkeypatch):
    module = shuffled(0)
    delegate_cuts.unwritten(module)
    assert "def forward" not in f"{module}"
    assert "def forward" in f"{shuffled(0)}"
    monkeypatch.setattr(logging.getLogger(), "level", logging.DEBUG)
    logging.getLogger().manager._clear_cache()
    assert "def forward" in f"{module}"


def test_nothing_of_it_outside_of_a_cut(cutting):
    with taking(cheap_cuts=False):
        module = shuffled(0)
        delegate_cuts.unwritten(module)
        graph = module.graph
        assert "def forward" in f"{module}"
        assert lowered_backend_module.legalize_graph(module).graph is not graph
