"""An option that cannot work is refused at once, with its value and what to give."""

import pytest

from safe_arm import UsageError
from safe_arm.partitioner.option_checks import check_numbers, check_switches

NUMBERS = {
    "text for seconds": (
        ("60", 0),
        "tool_time_limit '60' is not a positive number of seconds; 600, the default",
    ),
    "no seconds": ((0, 0), "tool_time_limit 0 is not a positive number"),
    "not a number": ((float("nan"), 0), "tool_time_limit nan is not a positive number"),
    "text for MACs": ((60, "1"), "min_macs '1' is not a number of multiply-accumulates; 0, the default, delegates all"),
    "negative": ((60, -1), "min_macs -1 is negative; 0, the default, delegates all"),
}


@pytest.mark.parametrize(("given", "says"), NUMBERS.values(), ids=NUMBERS)
def test_numbers(given, says):
    with pytest.raises(UsageError) as caught:
        check_numbers(*given)
    assert says in str(caught.value)


def test_numbers_that_work():
    check_numbers(0.5, 1e6)
    check_numbers(600, 0)


@pytest.mark.parametrize("value", ["yes", "no", 2, ()], ids=repr)
def test_a_switch_is_true_or_false(value):
    with pytest.raises(UsageError) as caught:
        check_switches(verify=value)
    assert str(caught.value) == f"verify {value!r} is not known; accepted: True, False"


def test_switches_that_work():
    check_switches(verify=None, preflight=True, strict=False)
