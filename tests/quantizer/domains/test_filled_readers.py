"""All that reads a value filled with a number is found, up to the last maxima."""

import pytest
import torch
import torch.nn.functional as F
from small import Lambda
from stubborn import exported

from safe_arm.core.island import op_name
from safe_arm.quantizer.domains.filled_readers import readers_of_fill

INPUTS = (torch.ones(1, 2, 4, 4),)


def readers(rule, number=-1e4):
    """The operators that read the first padding of a rule: those that move it, and the last maxima."""
    model = exported(Lambda(rule), INPUTS)
    for guard in model.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_tensor_metadata.default):
        model.graph.erase_node(guard)
    pad, *_ = model.graph.find_nodes(op="call_function", target=torch.ops.aten.pad.default)
    found = readers_of_fill(pad, number)
    if found is None:
        return None
    return [[op_name(node).removeprefix("aten::") for node in nodes] for nodes in (found.moved[1:], found.last)]


def padded(x):
    return F.pad(x, (1, 1), value=-1e4)


def of(read):
    """A rule that reads a padded value, so that the padding is one node."""
    return lambda m, x: read(padded(x))


FOUND = {
    "a pool": (of(lambda p: F.max_pool2d(p, 3)), [[], ["max_pool2d"]]),
    "a view": (of(lambda p: p.view(1, 2, 24).amax(2)), [["view"], ["amax"]]),
    "slices": (of(lambda p: torch.maximum(p[..., 1:], p[..., :-1])), [["slice", "slice"], ["maximum"]]),
    "maxima": (of(lambda p: p.amax(3).amax(2) * 2), [["amax"], ["amax"]]),
    "a join": (of(lambda p: torch.cat((p, p * 0), 1).amax(1)), None),
    "a join alone": (of(lambda p: torch.cat((p[:, :1], p[:, 1:])).amax(1)), [["slice", "slice", "cat"], ["amax"]]),
    "a cast to its own dtype": (of(lambda p: p.to(torch.float32, copy=True).amax(1)), [["to"], ["amax"]]),
    "a cast to another": (of(lambda p: p.to(torch.float16).amax(1)), None),
    "no reader": (lambda m, x: padded(x), None),
    "an average": (of(lambda p: p.mean(3)), None),
    "the other extreme": (of(lambda p: p.amin(3)), None),
    "both extremes": (of(lambda p: torch.minimum(p, p.amax(3, keepdim=True))), None),
    "a ReLU, which drops it": (of(lambda p: p.relu().amax(3)), [[], ["relu"]]),
    "the place of one": (of(lambda p: p.argmax(3)), [[], ["argmax"]]),
}


@pytest.mark.parametrize(("rule", "expected"), FOUND.values(), ids=FOUND)
def test_readers_are_found(rule, expected):
    assert readers(rule) == expected


def test_minima_read_a_high_number():
    assert readers(of(lambda p: p.amin(3)), 1e4) == [[], ["amin"]]
    assert readers(of(lambda p: p.amax(3)), 1e4) is None
