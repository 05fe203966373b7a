"""Elements of a list keep a note of their own qparams."""

import torch
from lowering import edge_program, targets
from small import DQ, Built, Q, image, marked

from safe_arm.passes.record_element_qparams import ELEMENT_QPARAMS, RecordElementQParamsPass

OUT = (0.02, 5, -128, 127, torch.int8)


def graph(second_scale):
    """A cat of the input's halves, dequantised with two sets of qparams."""

    def forward(m, x):
        codes = Q(x, 0.01, 0, -128, 127, torch.int8)
        first = DQ(codes[:, :2], 0.01, 0, -128, 127, torch.int8)
        second = DQ(codes[:, 2:], second_scale, 0, -128, 127, torch.int8)
        return DQ(Q(torch.cat((first, second), 1), *OUT), *OUT)

    return edge_program(marked(Built(forward), image()), image()).graph_module


def noted(graph_module):
    return [n.meta[ELEMENT_QPARAMS] for n in graph_module.graph.nodes if ELEMENT_QPARAMS in n.meta]


def test_elements_of_different_domains_are_noted_and_twice_equals_once():
    graph_module = graph(0.03)
    before = targets(graph_module)
    for _ in range(2):
        assert RecordElementQParamsPass()(graph_module).modified
        (note,) = noted(graph_module)
        assert [q.scale for q in note[0]] == [0.01, 0.03]
        assert targets(graph_module) == before


def test_elements_of_one_domain_are_not():
    graph_module = graph(0.01)
    assert not RecordElementQParamsPass()(graph_module).modified
    assert noted(graph_module) == []
