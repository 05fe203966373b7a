"""What a plan says about the islands it keeps."""

import torch
import torch.nn.functional as F
from prepared import prepared

from safe_arm.partitioner.plan import Plan, plan


def test_an_island_is_refused_or_kept_never_both():
    edge = prepared(lambda m, x: torch.sigmoid(torch.cat((F.relu(m.conv(x)), F.relu(m.conv_b(x)) - x), 1))).program()
    for policy in ("reject", "propagate"):
        decided = plan(edge, policy)
        assert not decided.refused & decided.kept
    assert len(plan(edge, "propagate").kept_islands) > len(plan(edge, "reject").kept_islands)


def test_an_empty_plan_refuses_nothing():
    assert Plan().refused == Plan().kept == frozenset()
