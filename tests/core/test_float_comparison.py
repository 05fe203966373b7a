"""The record of a comparison with the float net travels as a line of JSON."""

import pytest

from safe_arm.core.float_comparison import FloatComparison, OutputFidelity, from_json, to_json

RECORD = FloatComparison((OutputFidelity("y", 40.0, 30.0, 2), OutputFidelity("labels", agreement=0.9)), 8, 12, "a note")


def test_it_comes_back_as_it_was():
    assert from_json(to_json(RECORD)) == RECORD
    assert "\n" not in to_json(RECORD)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"outputs": [{"size": 1}]}', '{"outputs": 3}', "null"])
def test_anything_else_is_an_error(text):
    with pytest.raises(ValueError):
        from_json(text)


def test_the_worst_of_all_outputs():
    assert RECORD.worst_sqnr == 30.0
    assert FloatComparison().worst_sqnr is None
    assert RECORD.of_method("encode").method == "encode"
