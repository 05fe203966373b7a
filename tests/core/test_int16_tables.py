"""A few tables of 513 entries are a function of 16 bits to within 10 codes, also near a pole at 0."""

import math

import pytest
import torch

from safe_arm.core.int16_tables import FARTHEST, sum_of, tables_of, whole_table

CODES = torch.arange(-(2**15), 2**15 + 1).double()
LARGEST = 2**15 - 1
#: By name, a function in codes, the magnifications of its tables, and the codes that it is from the first alone.
NEAR_ZERO = {
    "sqrt": (LARGEST * (CODES / LARGEST).sqrt(), [0, 5, 8], 500),
    "pow": (LARGEST * (CODES / LARGEST) ** 0.33, [0, 5, 8], 2000),
    "log": (3000 * (CODES / 1000).log(), [0, 4, 8], 10_000),
    "atan": (20_000 * (CODES / 250).atan(), [0, 4], 200),
    "rsqrt": (16_000 * CODES.rsqrt(), [0, 6, 8], 5000),
    "reciprocal": (3e5 / CODES, [0, 5, 8], 5000),
    "reciprocal of a wide domain": (24e6 / CODES, [0, 3, 5, 8], 5000),
    "reciprocal of a square": (3e9 / CODES**2, [0, 4, 6], 4000),
    "sqrt of a wide domain": (5 * LARGEST * (CODES / LARGEST).sqrt(), [0, 4, 8], 2000),
    "its negative": (-5 * LARGEST * (CODES / LARGEST).sqrt(), [0, 4, 8], 2000),
    "rsqrt of a wide domain": (9e5 * CODES.rsqrt(), [0, 3], 20),
    "logarithm of a wide domain": (2e4 * (CODES / 3000).log(), [0, 3], 20),
    "an odd pole": (1e8 / CODES**3, [0, 7, 8], 5000),
    "a pole between two entries": (1e9 / CODES, [0, 8], 5000),
    "a step": (LARGEST * (CODES / 2).tanh(), [0, 8], 5000),
}
#: Functions that grow beyond the largest code between the last code that calibration showed and the next entry.
GROWING = {
    "exp": (CODES / 4096).exp() * 1080,
    "cube": (CODES / 14_400) ** 3 * LARGEST,
    "sinh": (CODES / 4096).sinh() * 2160,
}


def farthest(tables, function):
    """Return the most codes by which tables differ from a function, where it has a value."""
    wanted = function[:-1].clamp(-(2**15), LARGEST)
    return (wanted - sum_of(tables)).nan_to_num(0.0).abs().max()


@pytest.mark.parametrize(("function", "magnified", "of_one"), NEAR_ZERO.values(), ids=NEAR_ZERO)
def test_finer_tables_around_0_make_a_function_exact(function, magnified, of_one):
    tables = tables_of(function)
    assert [table.magnified for table in tables] == magnified
    assert farthest(tables, function) <= FARTHEST
    assert farthest([whole_table(function)], function) > of_one


@pytest.mark.parametrize("function", GROWING.values(), ids=GROWING)
def test_a_line_leads_beyond_the_largest_code(function):
    (table,) = tables_of(function)
    assert table.is_doubled
    assert farthest([table], function) <= FARTHEST
    assert farthest([whole_table(function)], function) > 100


@pytest.mark.parametrize("function", [CODES / 2, LARGEST * (CODES / 8192).tanh(), CODES.relu()])
def test_one_table_is_enough_where_lines_are_close(function):
    (table,) = tables_of(function)
    assert (table.magnified, table.is_doubled) == (0, False)


@pytest.mark.parametrize("waves", [30, 300])
def test_a_function_that_is_far_from_lines_everywhere_has_no_tables(waves):
    assert tables_of(LARGEST * (CODES * math.pi * waves / 2**15).sin()) == ()


def test_no_line_of_theirs_is_too_steep():
    """TOSA leaves a line undefined that leads across more than 2**15 - 1 codes, as that of 1/x would at 0."""
    for function, *_ in NEAR_ZERO.values():
        for table in tables_of(function):
            assert table.entries.int().diff().abs().max() <= LARGEST


def test_beyond_its_codes_a_finer_table_gives_nothing():
    coarse, *finer = tables_of(NEAR_ZERO["rsqrt"][0])
    reach = 2 ** (15 - finer[0].magnified)
    values = sum_of(finer)
    assert not values[: 2**15 - reach].any()
    assert not values[2**15 + reach :].any()
    assert torch.equal(sum_of([coarse, *finer])[-1000:], coarse.values()[-1000:])


@pytest.mark.parametrize("gap", [CODES < 1e6, CODES < 5, CODES > 5])
def test_where_a_function_has_no_value_any_will_do(gap):
    function = CODES.where(~gap, math.nan)
    (table,) = tables_of(function)
    assert farthest([table], function) <= FARTHEST
