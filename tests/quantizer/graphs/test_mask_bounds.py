"""The constants by which masked softmaxes are recognised."""

import pytest
import torch
from graph_changes import graph_of

from safe_arm.quantizer.graphs.mask_bounds import bound_of, is_bound, is_limited_mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_bound_is_finite_and_recognised(dtype):
    bound = bound_of(torch.tensor([True, False]), dtype)
    assert bound.dtype == dtype
    assert bound.isfinite().all()
    assert bound[0] > 1e4
    assert bound[1] < -1e4
    assert is_bound(bound)


@pytest.mark.parametrize(
    "value", [torch.tensor([1e20]), torch.tensor([2.0**100, 0.0]), torch.tensor([1]), torch.tensor([]), 2.0**100]
)
def test_the_near_miss_is_no_bound(value):
    assert not is_bound(value)


@pytest.mark.parametrize(
    ("rule", "limited"),
    [
        (lambda m, x: x.clamp(-(2.0**100)), True),
        (lambda m, x: x.clamp(-(2.0**100), 0.0), False),
        (lambda m, x: x.clamp(-80.0), False),
    ],
)
def test_a_limited_mask_has_one_limit(rule, limited):
    (node,) = graph_of(rule).graph.find_nodes(op="call_function", target=torch.ops.aten.clamp.default)
    assert is_limited_mask(node) == limited
    assert not is_limited_mask(node.args[0])
