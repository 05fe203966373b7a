"""A failure that needs company is repeated with the shortest run of units that shows it."""

import pytest

from safe_arm.repro import shrink
from safe_arm.repro.shrink import failing_part

UNITS = [frozenset((f"a{n}", f"b{n}")) for n in range(10)]


@pytest.fixture(autouse=True)
def every_unit_computes(monkeypatch):
    monkeypatch.setattr(shrink, "computes", lambda unit: bool(unit))


def needing(*numbers):
    """A failure that shows when all these units are there, and the parts it was looked for in."""
    wanted = frozenset().union(*(UNITS[n] for n in numbers))
    tried = []

    def fails(part):
        tried.append(frozenset(part))
        return wanted <= tried[-1]

    return fails, tried


def units(*numbers):
    return frozenset().union(*(UNITS[n] for n in numbers))


@pytest.mark.parametrize(
    ("culprit", "needed", "part"),
    [
        ((4,), (4,), (4,)),
        ((4,), (2, 4), (2, 3, 4)),
        ((4,), (0, 4), (0, 1, 2, 3, 4)),
        ((4,), (4, 6), (4, 5, 6, 7, 8, 9)),
        ((2, 5), (1, 2, 5), (1, 2, 3, 4, 5)),
        ((9,), (8, 9), (8, 9)),
    ],
)
def test_the_shortest_run_that_fails(culprit, needed, part):
    fails, tried = needing(*needed)
    assert failing_part(units(*culprit), UNITS, fails) == units(*part)
    assert len(tried) <= 6


def test_what_nothing_repeats_stays_as_it_is():
    assert failing_part(units(3), UNITS, lambda part: False) == units(3)


def test_a_whole_delegate_is_tried_once():
    fails, tried = needing(*range(10))
    assert failing_part(units(*range(10)), UNITS, fails) == units(*range(10))
    assert len(tried) == 1
