"""Lists whose elements live in different quantisation domains stay off the accelerator."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import PROFILES, codes_apart, edge_program, lower, tosa
from small import DQ, Q, image, mark_quantised

from safe_arm import SafeArmPartitioner
from safe_arm.partitioner.plan import plan

OUT = (0.02, 5, -128, 127, torch.int8)


class MixedCat(torch.nn.Module):
    """A cat of two int8 values with qparams of their own, one of them computed."""

    def __init__(self, second=(0.004, 30)):
        super().__init__()
        self.second = second

    def forward(self, x):
        a = DQ(Q(x, 0.01, 3, -128, 127, torch.int8), 0.01, 3, -128, 127, torch.int8)
        b = DQ(Q(x * 0.5, *self.second, -128, 127, torch.int8), *self.second, -128, 127, torch.int8)
        return DQ(Q(torch.cat((a, b), 1), *OUT), *OUT)


def marked(net):
    graph_module = mark_quantised(torch.export.export(net, image()).module())
    for node in graph_module.graph.nodes:
        if "mul" in str(node.target):
            del node.meta["custom"]  # the multiplication is float, the cat is quantised
    return graph_module


def test_stock_reinterprets_the_second_element():
    graph_module = marked(MixedCat())
    manager = lower(graph_module, image(), TOSAPartitioner(tosa(PROFILES[1])))
    assert codes_apart(manager, graph_module, image()) > 4


@pytest.mark.parametrize("profile", PROFILES)
def test_ours_refuses_it_and_is_exact(profile):
    graph_module = marked(MixedCat())
    partitioner = SafeArmPartitioner(tosa(profile))
    manager = lower(graph_module, image(), partitioner)
    assert codes_apart(manager, graph_module, image(), image(1, 2.0)) == 0
    (verdict,) = [v for v in partitioner.report.fallbacks if v.issue]
    assert (verdict.op, verdict.issue) == ("aten::cat", "S5")
    assert "scale 0.01 zero point 3" in verdict.reason


def test_one_domain_is_left_alone():
    program = edge_program(marked(MixedCat(second=(0.01, 3))), image())
    assert plan(program, "reject").refusals == ()


def test_planning_twice_is_planning_once():
    program = edge_program(marked(MixedCat()), image())
    assert (
        plan(program, "reject")
        == plan(program, "reject")
        != plan(edge_program(marked(MixedCat((0.01, 3))), image()), "reject")
    )
