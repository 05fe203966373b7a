"""The page of the docs about the coverage map, from the record of a run."""

from __future__ import annotations

from collections import Counter
from typing import Any

from safe_arm.core.plain_reasons import plain

OURS, STOCK = "ours", "stock"
Row = dict[str, Any]
_PAGE = """---
hide: [toc]
---
# How much of a net is delegated?

{answer}

The nets are small versions of what public libraries offer: timm, torchvision, transformers, MONAI,
vit-pytorch, x-transformers, torchaudio, pytorchcv and Ultralytics. Their weights are
random with a fixed seed; of blocks that repeat, the first is kept.

`make coverage-map` measures more of them and goes on where it was; the record is `tests/data/coverage-1.5.jsonl`. It
quantises and partitions each net as an export does, but calls no backend: an operator that a trial lowering would
demote counts as inside, and nothing here says that a result is right.
[Architectures](architectures.md) has nets that are lowered and proven.

*Whole* means one delegate and no operator outside. Quantise and dequantise at the border are not counted as operators.

## Targets
| target | by | nets | whole | one delegate | MACs in delegates, mean | operators outside | not measured |
|---|---|---|---|---|---|---|---|
{totals}

{beside_stock}
{rankings}
{cut_nets}
{unmeasured}"""


def page(rows: list[Row], names: list[str]) -> str:
    """Return the page.

    Args:
        rows: the records of all nets, targets and partitioners.
        names: of all nets of the map, measured or not.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["net"] in names:
            groups.setdefault((row["target"], row["by"]), []).append(row)
    targets = list(dict.fromkeys(target for target, by in groups if by == OURS))
    return _PAGE.format(
        answer=_answer({target: groups[target, OURS] for target in targets}, len(names)),
        totals="\n".join(_total(target, by, found) for (target, by), found in groups.items()),
        beside_stock=_beside_stock(groups, targets),
        rankings="\n".join(_ranking(target, groups[target, OURS]) for target in targets),
        cut_nets="\n".join(_cut_nets(target, groups[target, OURS]) for target in targets),
        unmeasured=_unmeasured(groups, targets, names),
    )


def is_whole(row: Row) -> bool:
    """Tell whether a net is one delegate with nothing outside."""
    return row["delegates"] == 1 and row["inside"] == row["operators"]


def ranking(rows: list[Row]) -> list[tuple[str, list[str], int]]:
    """Return the operators outside: each with the nets it is outside in and how often; the most nets first."""
    nets: dict[str, list[str]] = {}
    count: Counter[str] = Counter()
    for row in rows:
        for operator, reasons in row["outside"].items():
            nets.setdefault(operator, []).append(row["net"])
            count[operator] += sum(reasons.values())
    ranked = sorted(nets, key=lambda operator: (-len(nets[operator]), -count[operator], operator))
    return [(operator, nets[operator], count[operator]) for operator in ranked]


def _answer(groups: dict[str, list[Row]], count: int) -> str:
    parts = []
    for target, rows in groups.items():
        measured = _measured(rows)
        whole = sum(map(is_whole, measured))
        share = 100 * whole / max(1, len(measured))
        parts.append(f"{whole} of {len(measured)} nets ({share:.0f} %) are whole in one delegate for {target}")
    tried = {row["net"] for rows in groups.values() for row in rows}
    first = "the small ones first, and those that were cut in an earlier run"
    lines = "\n".join(f"* {part}." for part in parts)
    return f"{lines}\n\n{len(tried)} of {count} nets have been tried so far: {first}."


def _measured(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not row["failed"]]


def _total(target: str, by: str, rows: list[Row]) -> str:
    measured = _measured(rows)
    whole = sum(map(is_whole, measured))
    one = sum(row["delegates"] == 1 for row in measured)
    shares = [row["macs_inside"] / row["macs"] for row in measured if row["macs"]]
    mean = 100 * sum(shares) / max(1, len(shares))
    outside = sum(row["operators"] - row["inside"] for row in measured)
    failed = len(rows) - len(measured)
    return f"| {target} | {by} | {len(measured)} | {whole} | {one} | {mean:.1f} % | {outside} | {failed} |"


def fewer_than_stock(rows: list[Row]) -> list[str]:
    """Return the nets of which ours has fewer MACs in delegates than stock."""
    stock = {(row["net"], row["target"]): row for row in _measured(rows) if row["by"] == STOCK}
    fewer = []
    for row in _measured(rows):
        other = stock.get((row["net"], row["target"]))
        if row["by"] == OURS and other is not None and row["macs_inside"] < other["macs_inside"]:
            fewer.append(f"{row['net']}, {row['target']}")
    return fewer


def _beside_stock(groups: dict[tuple[str, str], list[Row]], targets: list[str]) -> str:
    lines = []
    for target in targets:
        stock = {row["net"]: row for row in groups.get((target, STOCK), [])}
        for row in _measured(groups[target, OURS]):
            other = stock.get(row["net"])
            if other is None or (is_whole(row) and not other["failed"] and is_whole(other)):
                continue
            lines.append(f"| {row['net']} | {target} | {_cell(other)} | {_cell(row)} |")
    if not lines:
        return ""
    head = "## Beside stock\nNets that are not whole by both: delegates, operators outside, MACs inside.\n\n"
    return f"{head}| net | target | stock | ours |\n|---|---|---|---|\n" + "\n".join(lines) + "\n"


def _cell(row: Row) -> str:
    if row["failed"]:
        return _escaped(f"fails: {row['failed']}")
    share = f"{100 * row['macs_inside'] / row['macs']:.0f} %" if row["macs"] else "no MACs"
    return f"{row['delegates']}, {row['operators'] - row['inside']}, {share}"


def _ranking(target: str, rows: list[Row]) -> str:
    ranked = ranking(_measured(rows))
    if not ranked:
        return f"## Operators outside, {target}\nNone.\n"
    lines = []
    for operator, nets, count in ranked:
        reasons: Counter[str] = Counter()
        for row in _measured(rows):
            reasons.update(row["outside"].get(operator, {}))
        reason = max(reasons, key=lambda text: reasons[text])
        lines.append(f"| `{_short(operator)}` | {len(nets)} | {count} | {_escaped(plain(reason))} |")
    head = f"## Operators outside, {target}\nRanked by the number of nets that each is outside in.\n\n"
    return f"{head}| operator | nets | times | most frequent reason |\n|---|---|---|---|\n" + "\n".join(lines) + "\n"


def _cut_nets(target: str, rows: list[Row]) -> str:
    lines = []
    for row in sorted(_measured(rows), key=lambda each: (-each["delegates"], each["net"])):
        if is_whole(row):
            continue
        counts = {_short(operator): sum(reasons.values()) for operator, reasons in row["outside"].items()}
        outside = ", ".join(f"`{name}` {count}" for name, count in counts.items()) or "nothing"
        kernels = len(row["kernels"])
        lines.append(f"| {row['net']} | {row['delegates']} | {row['operators']} | {outside} | {kernels} |")
    if not lines:
        return ""
    columns = "| net | delegates | operators | outside | CPU kernels |\n|---|---|---|---|---|\n"
    return f"## Nets that are cut, {target}\n{columns}" + "\n".join(lines) + "\n"


def _unmeasured(groups: dict[tuple[str, str], list[Row]], targets: list[str], names: list[str]) -> str:
    lines = []
    for target in targets:
        rows = groups[target, OURS]
        failures: dict[str, list[str]] = {}
        for row in rows:
            if row["failed"]:
                failures.setdefault(row["failed"], []).append(row["net"])
        for reason, nets in failures.items():
            lines.append(f"* {target}, {_escaped(reason)}: {', '.join(nets)}")
        tried = {row["net"] for row in rows}
        rest = [name for name in names if name not in tried]
        if rest:
            lines.append(f"* {target}, not tried yet: {_named_if_few(rest)}")
    if not lines:
        return ""
    return "## Nets without a figure\nThese are in the map, but not in the figures above.\n\n" + "\n".join(lines) + "\n"


def _named_if_few(nets: list[str]) -> str:
    return ", ".join(nets) if len(nets) <= 10 else f"{len(nets)} nets"


def _short(operator: str) -> str:
    return operator.removesuffix(".default")


def _escaped(text: str) -> str:
    for character in "|_*<":
        text = text.replace(character, f"\\{character}")
    return text
