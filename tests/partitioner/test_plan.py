"""What a plan says about the islands it keeps."""

import torch
import torch.nn.functional as F
from prepared import prepared

from safe_arm.core.island import op_name
from safe_arm.partitioner.plan import Plan, plan


def test_an_island_is_refused_or_kept_never_both():
    edge = prepared(lambda m, x: torch.sigmoid(torch.cat((F.relu(m.conv(x)), F.relu(m.conv_b(x)) - x), 1))).program()
    for policy in ("reject", "propagate"):
        decided = plan(edge, policy)
        assert not decided.refused & decided.kept
    assert len(plan(edge, "propagate").kept_islands) > len(plan(edge, "reject").kept_islands)


class Asked:
    """A check that refuses nothing, and remembers the operators that it was asked about."""

    def __init__(self, *targets) -> None:
        self.targets, self.names = targets, []

    def refuse(self, node, context):
        self.names.append(op_name(node))


def test_a_check_is_asked_about_its_targets_and_one_without_any_about_all():
    some, every = Asked("aten::relu"), Asked()
    plan(prepared(lambda m, x: F.relu(m.conv(x))).program(), "reject", (some, every))
    assert some.names == ["aten::relu"]
    assert {"aten::relu", "aten::convolution"} <= set(every.names)


def test_an_empty_plan_refuses_nothing():
    assert Plan().refused == Plan().kept == frozenset()
