"""The lines of the table: three figures side by side, and what ours loses, on the terminal and as a page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from benchmarks.quality.judge import BY, PROFILE, Figure
from benchmarks.quality.subjects import Entry

#: Decibels that are as good as no difference.
_ENOUGH = 60.0
#: How a text begins where there is nothing to quantise.
_NOTHING = ("left out", "float net")
HEAD = ("row", *BY, "lost", *(f"mask costs {by}" for by in BY), "float")
#: Characters of an exception that a cell holds.
_CELL = 24
GROUPS = {
    "a": "operators of torch's OpInfo",
    "b": "composite operators",
    "c": "decoders with masks",
    "d": "transformers",
    "e": "architectures",
    "f": "trained nets on photographs and tones",
}
_PAGE = """---
hide: [toc]
---
# How much accuracy does quantisation cost?

Little for most operators: the table compares {count} rows, each quantised to int8 in three ways, with the float net on
samples that no calibration has seen. Figures are the signal to quantisation noise ratio of the worst output, in dB;
nothing is lowered. `make quality` measured them for {profile}, with the same calibration samples for all three.

* *ideal*: each operator that `torch.export` gives is computed in float between quantised inputs and outputs, with the
  observers of the stock default config. Softmax, layer_norm or sdpa is one operator.
* *ours* and *stock*: prepared, calibrated and converted by `SafeTOSAQuantizer` and by `TOSAQuantizer`.
* *lost*: ideal minus ours, both capped at 60 dB. Rows are sorted by it. The ideal of a decoder with a mask is at least
  that of the same decoder without one, because a mask that harms the ideal must not hide a loss.
* *mask costs*: the figure without a mask minus the figure with it. The signal of a decoder is what attention adds to
  its output.
* *float*: number of operators that ours leaves in float. They make the figure look better than int8 is.
* Integers and booleans are right or wrong; their noise is the share of wrong ones. 200 dB means no difference.
* A comparison (`eq`, `gt`) needs both inputs in one domain (scale and zero point): in two, equal values would
  differ. The ideal uses two. With one, its `eq` is 19.8 or 20.4 dB instead of 36.0, and its `gt` 22.6 or 22.9.
* An index that is returned as a float (`masked.argmax`) is rounded to int8 by ours and stock; the ideal does not.

{totals}

{table}
## Decoders: what the mask costs

{masks}
## Rows without a figure

{without}
"""


@dataclass(frozen=True)
class Line:
    """One row of the table.

    Attributes:
        row: its name.
        figures: by whose they are.
        lost: dB by which ours is below the ideal; None if one of them is missing.
        mask_costs: dB by which each is below its own figure without a mask; empty where there is none.
    """

    row: str
    figures: Mapping[str, Figure]
    lost: float | None
    mask_costs: Mapping[str, float]

    @property
    def cells(self) -> tuple[str, ...]:
        """The row, cell by cell."""
        cells = [self.row]
        for by in BY:
            cells.append(_cell(self.figures.get(by)))
        cells.append("" if self.lost is None else f"{self.lost:.1f}")
        for by in BY:
            cells.append(f"{self.mask_costs[by]:.1f}" if by in self.mask_costs else "")
        ours = self.figures.get("ours")
        cells.append(str(ours.floats) if ours and ours.floats else "")
        return tuple(cells)

    @property
    def is_measured(self) -> bool:
        """Tell whether there is something to quantise; a row that ours fails on counts as measured."""
        for by, figure in self.figures.items():
            if by == "ideal" and figure.sqnr is None:
                return False
            if by == "ours" and figure.text.startswith(_NOTHING):
                return False
        return True


def lines(entries: Iterable[Entry], figures: Iterable[Figure]) -> list[Line]:
    """Return the lines of some rows: first those that ours fails on, then the largest loss, last those left out."""
    by_row: dict[str, dict[str, Figure]] = {}
    for figure in figures:
        by_row.setdefault(figure.row, {})[figure.by] = figure
    found = []
    for entry in entries:
        if entry.name in by_row:
            found.append(_line(entry, by_row))
    return sorted(found, key=_rank)


def _rank(line: Line) -> tuple[bool, float, str]:
    lost = math.inf if line.lost is None else line.lost
    return not line.is_measured, -lost, line.row


def _line(entry: Entry, by_row: Mapping[str, Mapping[str, Figure]]) -> Line:
    figures = by_row[entry.name]
    beside = by_row.get(entry.beside, {})
    costs = {}
    for by in BY:
        plain, masked = _ratio(beside.get(by)), _ratio(figures.get(by))
        if plain is not None and masked is not None:
            costs[by] = round(plain - masked, 2)
    ours, best = _ratio(figures.get("ours")), _ratio(figures.get("ideal"))
    unmasked = _ratio(beside.get("ideal"))
    if best is not None and unmasked is not None:
        best = max(best, unmasked)
    lost = None
    if ours is not None and best is not None:
        lost = round(min(best, _ENOUGH) - min(ours, _ENOUGH), 2)
    return Line(entry.name, figures, lost, costs)


def _ratio(figure: Figure | None) -> float | None:
    return None if figure is None else figure.sqnr


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    if figure.sqnr is not None:
        return f"{figure.sqnr:.1f}"
    text = " ".join(figure.text.split())
    return text if len(text) <= _CELL else f"{text[:_CELL]}…"


def terminal(found: Sequence[Line]) -> Table:
    """Return the table for a terminal; what is left out is counted."""
    measured = [line for line in found if line.is_measured]
    table = Table(*HEAD, caption=f"left out: {len(found) - len(measured)}")
    for line in measured:
        table.add_row(*line.cells)
    return table


def as_json(found: Sequence[Line]) -> str:
    """Return the figures by row, a row a line."""
    rows = []
    for line in sorted(found, key=lambda each: each.row):
        figures = {figure.by: figure.sqnr for figure in line.figures.values()}
        if line.is_measured:
            rows.append(f"{json.dumps(line.row)}: {json.dumps(figures, sort_keys=True)}")
    return "{\n" + ",\n".join(rows) + "\n}\n"


def page(found: Sequence[Line]) -> str:
    """Return the page of the docs."""
    measured, masked, without = [], [], []
    for line in found:
        if not line.is_measured:
            without.append(f"* {_escaped(line.row)}: {_reason(line)}")
            continue
        row, *quality = line.cells
        costs = quality[len(BY) + 1 : -1]
        measured.append((row, *quality[: len(BY) + 1], quality[-1]))
        if line.mask_costs:
            masked.append((row, *costs))
    return _PAGE.format(
        count=len(measured),
        profile=PROFILE,
        totals="\n".join(_totals(found)),
        table=_table(("row", *BY, "lost", "float"), measured),
        masks=_table(("row", *BY), masked),
        without="\n".join(without) or "None.",
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; all cells but the first of a row are figures."""
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for row in rows:
        lines.append(f"| {' | '.join(map(_escaped, row))} |")
    return "\n".join(lines) + "\n"


def _totals(found: Sequence[Line]) -> list[str]:
    totals = []
    for letter, name in GROUPS.items():
        lost = sorted(line.lost for line in found if line.row[0] == letter and line.lost is not None)
        if lost:
            over = sum(each > 3 for each in lost)
            middle = round(lost[len(lost) // 2], 1) + 0.0  # No negative zero.
            totals.append(f"* {letter}, {name}: {len(lost)} rows, median lost {middle:.1f} dB; {over} lose over 3 dB")
    return totals


def _reason(line: Line) -> str:
    texts = {figure.text for figure in line.figures.values() if figure.by != "stock" and figure.text}
    return "; ".join(map(_escaped, sorted(texts)))


def _escaped(text: str) -> str:
    for character in "|_*<":
        text = text.replace(character, "\\" + character)
    return text
