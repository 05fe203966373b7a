"""Approximate a function of 16 bits by TOSA TABLEs: 513 codes each, and straight lines between them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from safe_arm.core.operators import named

#: The distance of two entries in codes, and the number of entries.
STEP = 128
ENTRIES = 513
#: Codes that a value read from tables should be from the function at most, and may be: a 2,048th of the largest.
_CLOSE = 10
FARTHEST = 16
#: Operators whose int16 output is compared with what 16-bit tables give for the function, not with the function
#: (verification/tables.py): a TABLE has 513 codes of it and interpolates between them. They are at most 16 codes from
#: it.
TABLES = named(
    "acos acosh asin asinh atan atanh cos cosh elu erf erfinv exp expm1 gelu hardsigmoid hardswish leaky_relu log "
    "log10 log1p pow reciprocal rsqrt sigmoid silu sin sinh tan tanh"
)
_SMALLEST = -(2**15)
_LARGEST = 2**15 - 1
#: No line may be steeper (TOSA 1.0, TABLE).
_STEEPEST = 2**15 - 1
#: Functions are cut off at the first of these, or at the second: a line may lead to an entry beyond the largest code.
_CUT_OFF_AT = (_LARGEST, 2 * _LARGEST)
_MOST_TABLES = 4
#: Magnified 256 times, every code has an entry of its own, and another one is between two.
_FINEST = 8


class Table(NamedTuple):
    """One TABLE, which is read at the codes times a power of two, cut off at 16 bits.

    Attributes:
        magnified: the exponent of the power.
        entries: 513 values of 16 bits.
        is_doubled: what the table gives is multiplied by 2, because its entries would be too large.
    """

    magnified: int
    entries: Tensor
    is_doubled: bool = False

    def values(self) -> Tensor:
        """Return what the table gives for each of the 65,536 codes, rounded as RESCALE rounds, and not cut off."""
        codes = _cut_off(all_codes() * 2**self.magnified)
        values = torch.floor(between(self.entries.double(), codes) + 0.5)
        return values * self.factor

    @property
    def factor(self) -> int:
        """The number that the table's values are multiplied by."""
        return 2 if self.is_doubled else 1


Tables = tuple[Table, ...]


def all_codes() -> Tensor:
    """Return each code of 16 bits, in ascending order."""
    return torch.arange(_SMALLEST, _LARGEST + 1)


def between(entries: Tensor, codes: Tensor) -> Tensor:
    """Interpolate a table of 513 entries at some codes."""
    place = codes.long() - _SMALLEST
    low = place // STEP
    part = (place % STEP).double() / STEP
    return entries[low] * (1 - part) + entries[low + 1] * part


def tables_of(function: Tensor) -> Tables:
    """Return tables whose values add up to a function, to within 10 codes or else 16.

    One table is tried first. Where it is too far from the function on codes around 0, as near the pole of an inverse
    root, a second one adds what is missing there, and a third one what both leave.

    Args:
        function: its values at the codes from -2**15 to 2**15, in codes of the result, unrounded and not cut off. It
            may be anything where it is NaN.

    Returns:
        Tables: the tables; none if four are not enough, or if the lines of one are too steep.
    """
    return _tables_of(function.double().numpy().tobytes())


@lru_cache(maxsize=64)
def _tables_of(values: bytes) -> Tables:
    """The same of the values' bytes: a proof asks for those of one function for each of its inputs."""
    function = torch.frombuffer(bytearray(values), dtype=torch.double)
    for allowed in (_CLOSE, FARTHEST):
        for tables in _candidates(function, allowed):
            if (
                _are_defined(tables)
                and not _bad_codes(tables, function, allowed).numel()
            ):
                return tables
    return ()


def sum_of(tables: Tables) -> Tensor:
    """Return the sum of what tables give for each of the 65,536 codes, in 16 bits."""
    total = torch.zeros(2**16, dtype=torch.double)
    for table in tables:
        total = _cut_off(total + _cut_off(table.values()))
    return total


def whole_table(function: Tensor, largest: int = _LARGEST) -> Table:
    """Return the table of a function that is cut off at a largest value."""
    entries = _without_gaps(function)[::STEP]
    return _table(0, entries.clamp(-largest, largest))


def _without_gaps(function: Tensor) -> Tensor:
    """Return a function that has its next value where it has none, or its last."""
    places = torch.arange(function.numel())
    known = places[~function.isnan()]
    if not known.numel():
        return torch.zeros_like(function)
    following = torch.searchsorted(known, places).clamp(max=known.numel() - 1)
    return function[known[following]]


def _candidates(function: Tensor, allowed: int) -> Iterator[Tables]:
    for largest in _CUT_OFF_AT:
        yield (whole_table(function, largest),)
    mirrored = function.where(~function.isnan(), function.flip(0))
    variants = (_without_gaps(function), _without_gaps(mirrored))
    for near, variant, largest in product(
        (allowed // 2, allowed), variants, _CUT_OFF_AT
    ):
        wanted = variant.clamp(-largest, largest)
        tables: Tables = (whole_table(wanted, largest),)
        while len(tables) < _MOST_TABLES:
            outermost = max(
                _bad_codes(tables, function, near).abs().tolist(), default=0
            )
            magnified = min(_FINEST, 15 - outermost.bit_length())
            if magnified <= tables[-1].magnified:
                break
            tables = _with_finer(tables, wanted, magnified)
            yield tables


def _with_finer(tables: Tables, wanted: Tensor, magnified: int) -> Tables:
    """Add a table of what the others miss on the codes around 0.

    Args:
        tables: those so far; the finest gets a straight line on the codes of the new one.
        wanted: the sum of all for each code, and the one behind the last.
        magnified: that of the new table.
    """
    reach = 2 ** (15 - magnified)
    bridged = (*tables[:-1], _bridged(tables[-1], reach))
    missing = _missing(bridged, wanted[:-1])
    # Beyond its codes a table gives its first entry or its last. There, at entries of theirs, the others are right.
    inside = missing[2**15 - reach : 2**15 + reach + 1]
    if magnified == _FINEST:
        entries = torch.zeros(ENTRIES, dtype=torch.double)
        entries[::2] = inside
    else:
        entries = inside[:: STEP >> magnified]
    return (*bridged, _table(magnified, entries))


def _missing(tables: Tables, wanted: Tensor) -> Tensor:
    """Return what tables miss for each code; beyond 16 bits that is at least what leads to the end of them."""
    beyond = wanted.clone()
    for table in tables:
        beyond -= table.values()
    present = sum_of(tables)
    missing = wanted - present
    above = beyond.maximum(_LARGEST - present)
    below = beyond.minimum(-_LARGEST - present)
    missing = torch.where(wanted >= _LARGEST, above, missing)
    return torch.where(wanted <= -_LARGEST, below, missing)


def _bridged(table: Table, reach: int) -> Table:
    """Return a table with a straight line on the codes around 0, up to its next entry where they end."""
    count = max(1, reach * 2**table.magnified // STEP - 1)
    middle = ENTRIES // 2
    entries = table.entries.double() * table.factor
    low, high = entries[middle - count], entries[middle + count]
    share = torch.linspace(0.0, 1.0, 2 * count + 1, dtype=torch.double)
    entries[middle - count : middle + count + 1] = low + (high - low) * share
    return _table(table.magnified, entries)


def _table(magnified: int, entries: Tensor) -> Table:
    """Return the table of some entries, none of which is larger than twice the largest code."""
    is_doubled = bool(entries.abs().max().round() > _LARGEST)
    if is_doubled:
        entries = (entries / 2).clamp(-_LARGEST, _LARGEST)
    return Table(magnified, entries.round().short(), is_doubled)


def _are_defined(tables: Tables) -> bool:
    """Tell whether no line between two entries is too steep."""
    return all(table.entries.int().diff().abs().max() <= _STEEPEST for table in tables)


def _bad_codes(tables: Tables, function: Tensor, allowed: int) -> Tensor:
    """Return the codes at which the sum of tables is farther from the function than allowed."""
    missing = _cut_off(function[:-1]) - sum_of(tables)
    return all_codes()[missing.abs() > allowed]


def _cut_off(values: Tensor) -> Tensor:
    return values.clamp(_SMALLEST, _LARGEST)
