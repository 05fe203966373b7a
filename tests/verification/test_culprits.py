"""A unit that turns out to be right clears its own values, and no other's."""

import torch
from torch.fx import Graph

from safe_arm.verification.culprits import _Doubt, _Walk
from safe_arm.verification.evaluation import Evaluation


def test_who_is_acquitted_leaves_the_doubts_about_others():
    graph = Graph()
    values = {graph.placeholder(name): torch.ones(1) for name in "xyz"}
    guilty, innocent, after = values
    suspects = [{frozenset((node,)): None} for node in (guilty, innocent, innocent)]
    doubts = {node: _Doubt(each, before_clamp=False) for node, each in zip(values, suspects, strict=True)}
    walk = _Walk(None, None, 0, {}, {}, Evaluation({}, errors={}), Evaluation(values, errors={}), doubts)
    walk._acquit(suspects[1])
    assert list(walk.doubts) == [guilty]
    assert list(walk.taken.values) == [innocent, after]
