"""A user's function as a metric, and all that can be wrong with one."""

import math

import pytest

from safe_arm import UsageError
from safe_arm.tuning.metrics import Goal, load_function


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda net: 1 / 0, "metric f raises ZeroDivisionError: division by zero; fix the function"),
        (lambda net: None, "metric f raises TypeError"),
        (lambda net: math.nan, "metric f gives NaN; expected a number, larger is better"),
    ],
)
def test_a_function_that_gives_no_number(function, says):
    with pytest.raises(UsageError) as error:
        Goal("f", 0, function).of(None)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("metric", "names no function; expected FILE.py:FUNCTION"),
        ("no_such.py:f", "'no_such.py' does not exist"),
        ("here.py:g", "has no function 'g'"),
        ("raises.py:f", "fails with ValueError: early"),
        ("here.txt:f", "is no Python file"),
    ],
)
def test_a_function_that_cannot_be_had(tmp_path, monkeypatch, text, says):
    monkeypatch.chdir(tmp_path)
    for name in ("here.py", "here.txt"):
        (tmp_path / name).write_text("f = len\n")
    (tmp_path / "raises.py").write_text("raise ValueError('early')\n")
    with pytest.raises(UsageError) as error:
        load_function(text)
    assert says in str(error.value)
