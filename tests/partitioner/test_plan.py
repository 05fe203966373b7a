"""What a plan says about the islands it keeps."""

import torch
import torch.nn.functional as F
from lowering import PROFILES, edge_program, quantize, tosa
from small import Lambda, image

from safe_arm.partitioner.plan import Plan, plan


def program():
    net = Lambda(lambda m, x: m.conv_b(torch.cat((F.relu(m.conv(x))[:, :2], F.relu(m.conv_b(x))[:, :2] - x[:, :2]), 1)))
    return edge_program(quantize(net, image(), tosa(PROFILES[1])), image())


def test_an_island_is_refused_or_kept_never_both():
    edge = program()
    for policy in ("reject", "propagate"):
        decided = plan(edge, policy)
        assert not decided.refused & decided.kept
    assert len(plan(edge, "propagate").kept_islands) > len(plan(edge, "reject").kept_islands)


def test_an_empty_plan_refuses_nothing():
    assert Plan().refused == Plan().kept == frozenset()
