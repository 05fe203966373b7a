"""A value of dataclasses comes back from JSON as it was, and content that lacks a field or has another is refused."""

import json
from dataclasses import asdict

import pytest

from safe_arm.core.record import Reason, Verification
from safe_arm.core.structured import structured
from safe_arm.core.unit_accuracy import Accuracy, UnitAccuracy

UNIT = UnitAccuracy("conv", "d1", "aten::conv2d", 40.0, 50.0, 0.0, 1.0, nodes=("conv", "relu"))
VALUES = [
    Reason("a check", "check"),
    Verification("tag0", True, "", 12, 0.0, 6, 1.5, ties=("mean",)),
    Accuracy((UNIT, UNIT), (40.0,), 8, 1.0, worst_sample_db=None),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_was_written_comes_back(value):
    assert structured(type(value), json.loads(json.dumps(asdict(value)))) == value


@pytest.mark.parametrize(
    ("content", "error"),
    [({"text": "", "stage": ""}, KeyError), ({**asdict(VALUES[0]), "more": 1}, KeyError), (3, TypeError)],
    ids=["a field missing", "a field too many", "a number"],
)
def test_anything_else_is_an_error(content, error):
    with pytest.raises(error):
        structured(Reason, content)
