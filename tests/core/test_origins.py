"""An exception is read back to the node it was about; what must reach the user is never swallowed."""

import torch
from small import Lambda, image

from safe_arm.core.exceptions import attempted
from safe_arm.core.origins import ORIGIN_KEY, origins_planted, remove_origins, suspects


def graph():
    net = Lambda(lambda m, x: torch.sigmoid(torch.relu(m.conv(x))))
    return torch.export.export(net, image()).module(check_guards=False)


def failing_pass(graph_module, name):
    """Like a pass that walks the graph, with another node in reach."""
    for node in graph_module.graph.nodes:
        user = next(iter(node.users), None)
        if node.name == name:
            raise RuntimeError(f"cannot take {user}")


def test_the_node_at_work_comes_first_and_without_a_planted_name_nothing_is_suspected():
    graph_module = graph()
    assert suspects(attempted(failing_pass, graph_module, "relu")) == []
    with origins_planted(graph_module):
        assert suspects(attempted(failing_pass, graph_module, "relu"))[:2] == ["relu", "sigmoid"]


def test_planting_leaves_no_trace():
    graph_module = graph()
    before = [dict(n.meta) for n in graph_module.graph.nodes]
    with origins_planted(graph_module):
        assert all(n.meta[ORIGIN_KEY] == n.name for n in graph_module.graph.nodes)
    assert [dict(n.meta) for n in graph_module.graph.nodes] == before


def test_nested_nodes_bear_the_name_of_their_caller_and_lose_it_again():
    net = Lambda(lambda m, x: torch.cond(x.sum() > 0, lambda a: a + 1.0, lambda a: a * 2.0, (x,)))
    graph_module = torch.export.export(net, image()).module(check_guards=False)
    nested = [n for m in graph_module.children() for n in getattr(m, "graph", torch.fx.Graph()).nodes]
    with origins_planted(graph_module):
        assert {n.meta[ORIGIN_KEY] for n in nested} == {"cond"}
        for n in nested:
            n.meta["copied"] = n.meta[ORIGIN_KEY]
    nested[0].meta[ORIGIN_KEY] = "left over"
    remove_origins(graph_module)
    assert all(ORIGIN_KEY not in n.meta for n in nested)
