"""Delegates are extractable after any demotion, in every profile: a property over random graphs."""

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx import Graph, GraphModule

from safe_arm._compat.extraction import TAG
from safe_arm.partitioner.convexity import split_cycles


def graph_module(edges, tags):
    """Node i calls a function of its predecessors; ``tags[i]`` is its delegate, None for none."""
    graph = Graph()
    nodes = []
    for index, tag in enumerate(tags):
        before = tuple(nodes[a] for a, b in edges if b == index)
        nodes.append(graph.call_function(max, before) if before else graph.placeholder(f"x{index}"))
        if tag is not None and before:
            nodes[-1].meta[TAG] = tag
    graph.output(tuple(nodes))
    return GraphModule({}, graph)


def tags_of(module):
    return [node.meta.get(TAG) for node in module.graph.nodes]


def contraction(module):
    """The graph that is left when each delegate becomes one node: built here anew, not with the code under test."""
    label = {n: n.meta.get(TAG) or n.name for n in module.graph.nodes}
    return nx.DiGraph([(label[a], label[b]) for b in label for a in b.all_input_nodes if label[a] != label[b]])


@st.composite
def dags(draw):
    size = draw(st.integers(2, 24))
    pairs = [(a, b) for b in range(size) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=3 * size, unique=True))
    tags = draw(st.lists(st.sampled_from([None, "tag0", "tag1", "tag2"]), min_size=size, max_size=size))
    demoted = draw(st.sets(st.integers(0, size - 1)))
    return edges, [None if i in demoted else tag for i, tag in enumerate(tags)]


@given(dags())
@settings(max_examples=400, deadline=None)
def test_whatever_is_demoted_the_delegates_left_are_extractable(drawn):
    module = graph_module(*drawn)
    before = tags_of(module)
    sound = nx.is_directed_acyclic_graph(contraction(module))
    split = split_cycles(module)
    after = tags_of(module)
    assert nx.is_directed_acyclic_graph(contraction(module))
    assert [t is None for t in before] == [t is None for t in after], "a node was lost or gained"
    assert all(a is None or a.split("_")[0] == b for a, b in zip(after, before, strict=True)), "delegates were mixed"
    assert (not split) == sound
    assert all(new.split("_")[0] == tag for new, tag in split.items())
    assert (after == before) == sound
    assert split_cycles(module) == {}


@pytest.mark.parametrize(
    ("edges", "tags", "expected"),
    [
        pytest.param([(0, 1), (1, 2), (2, 3)], [None, "a", None, "a"], [None, "a", None, "a_1"], id="out and back"),
        pytest.param(
            [(0, 1), (1, 2), (0, 3), (3, 4)],
            [None, "a", "b", "b", "a"],
            [None, "a", "b_1", "b", "a"],
            id="through each other: one of the two is split, not both",
        ),
        pytest.param([(0, 1), (0, 2), (1, 3), (2, 3)], [None, "a", None, "b"], [None, "a", None, "b"], id="near miss"),
        pytest.param(
            [(0, 1), (1, 2), (0, 3), (2, 4), (3, 4)],
            [None, "a", None, "a", "a"],
            [None, "a", None, "a_1", "a_1"],
            id="a weight goes with its layer",
        ),
        pytest.param([(0, 1), (0, 2)], [None, "a", "a"], [None, "a", "a"], id="two islands, one delegate"),
    ],
)
def test_small_graphs(edges, tags, expected):
    module = graph_module(edges, tags)
    split_cycles(module)
    assert tags_of(module)[: len(expected)] == expected


def test_a_constant_of_one_delegate_that_another_reads_makes_no_cycle():
    module = graph_module([(0, 1), (1, 2), (0, 2)], [None, "a", "b"])
    constant = next(iter(module.graph.nodes))
    constant.meta[TAG] = "b"
    assert split_cycles(module) == {}
    assert tags_of(module)[1:3] == ["a", "b"]
