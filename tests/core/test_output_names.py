"""An output has the key under which the net returns it; without one it has a number."""

from collections import namedtuple

import pytest
from torch.utils._pytree import tree_flatten

from safe_arm.core.output_names import output_names

Pair = namedtuple("Pair", ("mean", "scale"))


@pytest.mark.parametrize(
    ("returned", "names"),
    [
        (0, ["output 0"]),
        ((0, 1), ["output 0", "output 1"]),
        ({"logits": 0, "aux": (1, 2)}, ["logits", "aux[0]", "aux[1]"]),
        ((0, {"boxes": [1, {"score": 2}]}), ["output 0", "boxes[0]", "score"]),
        (Pair(0, 1), ["mean", "scale"]),
        ({7: 0}, ["7"]),
    ],
    ids=["one", "two", "dict", "nested", "named tuple", "number as key"],
)
def test_names(returned, names):
    leaves, spec = tree_flatten(returned)
    assert output_names(spec, len(leaves)) == names


def test_what_does_not_fit_has_numbers():
    _, spec = tree_flatten({"logits": 0})
    assert output_names(spec, 2) == ["output 0", "output 1"]
    assert output_names(None, 1) == ["output 0"]
