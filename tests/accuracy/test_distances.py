"""Powers, ranges and channels of values written down by hand."""

import math

import pytest
import torch

from safe_arm.accuracy.distances import SignalDistance, UnitDistances, apart, finite, power
from safe_arm.core.island import QParams
from safe_arm.core.unit_accuracy import EXACT_DB, decibel

#: Codes -128 to 127 of a tenth, zero at code 0: -12.8 to 12.7.
TENTHS = QParams(0.1, 0, -128, 127, torch.int8)


@pytest.mark.parametrize(
    ("signal", "noise", "ratio"),
    [(1.0, 0.001, 30.0), (1.0, 0.0, EXACT_DB), (0.0, 0.0, EXACT_DB), (0.0, 1.0, -EXACT_DB), (1.0, 1e-30, EXACT_DB)],
)
def test_decibels(signal, noise, ratio):
    assert decibel(signal, noise) == pytest.approx(ratio)


def test_mean_squares():
    assert power(torch.tensor([3.0, 4.0])) == 12.5
    assert apart(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 2.0])) == 2.0


def test_samples_add_up():
    distance = SignalDistance()
    distance.add(4.0, 0.01)
    distance.add(6.0, 0.09)
    assert distance.db == pytest.approx(20.0)


def test_infinities_and_what_is_no_number_are_left_out_of_both():
    wanted, got = torch.tensor([1.0, -math.inf, math.nan, 4.0]), torch.tensor([1.5, -12.8, 0.0, math.inf])
    for mine, theirs in zip(finite(wanted, got), ([1.0, 0.0, 0.0, 0.0], [1.5, 0.0, 0.0, 0.0]), strict=True):
        assert mine.tolist() == theirs
    plain = torch.tensor([1e38, 3e38])
    assert finite(plain, plain)[0].tolist() == plain.tolist(), "their sum overflows, they do not"


def test_the_range_and_what_lies_outside_it():
    found = UnitDistances(TENTHS, None)
    found.add(torch.tensor([0.0, 6.35, 12.74, 12.76]), torch.tensor([0.0, 6.4, 12.7, 12.7]), None)
    assert found.saturated == 0.25
    assert found.used == pytest.approx(12.7 / 25.5)
    assert (found.isolated.db, found.worst_channel) == (EXACT_DB, (None, None))


def test_the_worst_channel_is_alone_and_has_a_signal():
    found = UnitDistances(TENTHS, 1)
    values = [torch.tensor([row]) for row in ([1.0, 1.0, 0.0], [9.0, 9.0, 9.0], [1.01, 1.1, 0.5])]
    found.add(*values)
    found.add(*values)
    channel, ratio = found.worst_channel
    assert (channel, ratio) == (1, pytest.approx(20.0, abs=0.01))
