"""The page of the docs about the architectures, from the record of a run."""

from __future__ import annotations

from typing import Any

from benchmarks.architectures.measure import POLICIES, STOCK
from safe_arm.report.accuracy_text import decibels

Row = dict[str, Any]
#: Decibels below which a net is named above the table.
LOW = 20
_PAGE = """# Does it work on whole architectures?

Yes: safe_arm lowers all {count} architectures right, under `reject` and `propagate`. They are small versions from timm,
torchvision and transformers, and some written by hand (`benchmarks/architectures/`). Weights and the statistics of
batch norms are random with a fixed seed, so that zero points are not at the ends of the range.
`make architectures` measured them.

*Right* means that no delegate differs from the quantised graph in double precision by more than
`safe_arm/verification/tolerances.py` allows, on inputs of the calibrated range and of three times that range. The
share is that of the net's multiply-accumulates (MACs) in delegates; "delegated correctly" leaves out delegates that are
wrong. "1 code at the output" is the largest difference in the outputs of the whole program; each delegate is right
nevertheless.

{totals}
{tables}
{beside_float}"""
_BESIDE_FLOAT = """## Compared with the float net

These figures compare the outputs of the quantised program with the float net: signal to quantisation noise at the
worst output, on the {samples} that calibrated it, before lowering. Weights are random, so the dB say nothing about
trained nets; they only show whether the outputs follow the float net. *Shown on* is the number of inputs on which the
graph that is calibrated was [shown to compute the float net](float-proof.md).

{totals}

| net | {profiles} |
|---|{rule}|
{lines}
"""


def page(rows: list[Row], float_rows: list[Row]) -> str:
    """Return the page.

    Args:
        rows: the results, as ``measure.as_json`` gives them.
        float_rows: the nets beside their float nets, as ``beside_float`` records them.
    """
    by_profile: dict[str, dict[str, dict[str, Row]]] = {}
    for row in rows:
        by_profile.setdefault(row["profile"], {}).setdefault(row["net"], {})[row["by"]] = row
    count = max(map(len, by_profile.values()), default=0)
    totals = "\n".join(_totals(profile, nets) for profile, nets in by_profile.items())
    tables = "\n".join(_table(profile, nets) for profile, nets in by_profile.items())
    return _PAGE.format(count=count, totals=totals, tables=tables, beside_float=_beside_float(float_rows))


def is_silent(row: Row) -> bool:
    """Return True if the float proof ran on a net and found nothing."""
    return row["proven"] > 0 and not (row["reason"] or row["note"] or row["warned"] or row["changes"])


def fewer_than_stock(rows: list[Row]) -> list[str]:
    """Return the nets of which ours under ``propagate`` delegates fewer MACs rightly than stock does."""
    stock = {(row["net"], row["profile"]): row["right"] for row in rows if row["by"] == STOCK}
    ours = {(row["net"], row["profile"]): row["right"] for row in rows if row["by"] == "propagate"}
    return [f"{net}, {profile}" for (net, profile), macs in ours.items() if macs < stock.get((net, profile), 0)]


def _totals(profile: str, nets: dict[str, dict[str, Row]]) -> str:
    lines = []
    for by in (STOCK, *POLICIES):
        rows = [results[by] for results in nets.values() if by in results]
        count = {outcome: sum(row["outcome"] == outcome for row in rows) for outcome in ("right", "wrong", "died")}
        share = [row["right"] / row["macs"] for row in rows if row["macs"]]
        dead = len(rows) - len(share)
        mean = 100 * sum(share) / max(1, len(share) + dead)
        lines.append(
            f"* {profile}, {by}: {count['right']} of {len(rows)} right, {count['wrong']} wrong, {count['died']} "
            f"failed to export; {mean:.1f} % of the MACs delegated correctly, mean over the nets"
        )
    return "\n".join(lines) + "\n"


def _table(profile: str, nets: dict[str, dict[str, Row]]) -> str:
    head = f"\n## {profile}\n| net | MACs | stock | reject | propagate |\n|---|---|---|---|---|\n"
    lines = []
    for net, results in nets.items():
        macs = max((row["macs"] for row in results.values()), default=0)
        cells = " | ".join(_cell(results.get(by)) for by in (STOCK, *POLICIES))
        lines.append(f"| {net} | {macs:,} | {cells} |")
    return head + "\n".join(lines) + "\n"


def _cell(row: Row | None) -> str:
    if row is None:
        return "not run"
    if row["outcome"] == "died":
        return (
            "export fails: "
            + row["reason"].replace("|", "\\|").replace("_", "\\_").replace("*", "\\*").replace("<", "\\<")[:110]
        )
    share = f"{100 * row['delegated'] / row['macs']:.1f} %" if row["macs"] else "no MACs"
    wrong = "" if row["outcome"] == "right" else f"**wrong**, {row['worst']:g} codes; "
    demoted = f", {len(row['demoted'])} demoted" if row["demoted"] else ""
    left = f", {row['worst']:g} code{'s' * (row['worst'] > 1)} at the output" if row["worst"] and not wrong else ""
    return f"{wrong}{share}{demoted}{left}"


def _beside_float(rows: list[Row]) -> str:
    profiles = list(dict.fromkeys(row["profile"] for row in rows))
    by_net: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_net.setdefault(row["net"], {})[row["profile"]] = row
    totals = []
    for profile in profiles:
        of_profile = [row for row in rows if row["profile"] == profile]
        silent = sum(is_silent(row) for row in of_profile)
        totals.append(f"* {profile}: of {len(of_profile)} nets, the float proof ran on {silent} and found nothing")
        low = [row["net"] for row in of_profile if row["sqnr"] is not None and row["sqnr"] < LOW]
        if low:
            totals.append(f"* {profile}: below {LOW} dB are {', '.join(low)}; the cause was not investigated")
    lines = []
    for net, results in by_net.items():
        cells = " | ".join(_float_cell(results.get(profile)) for profile in profiles)
        lines.append(f"| {net} | {cells} |")
    most = max((row["samples"] for row in rows), default=0)
    return _BESIDE_FLOAT.format(
        samples="one sample" if most == 1 else f"up to {most} samples",
        totals="\n".join(totals),
        profiles=" | ".join(profiles),
        rule="|".join("---" for _ in profiles),
        lines="\n".join(lines),
    )


def _float_cell(row: Row | None) -> str:
    if row is None:
        return "not run"
    if row["reason"]:
        return f"not compared: {_escaped(row['reason'])}"
    figures = []
    if row["all_zero"]:
        figures.append("no figure, the float net gives only zeros")
    elif row["sqnr"] is not None:
        figures.append(decibels(row["sqnr"]))
    if row["agreement"] is not None:
        figures.append(f"{100 * row['agreement']:.1f} % of the integers agree")
    finds = [*row["warned"], *row["changes"]]
    if row["note"] and row["note"] not in finds:
        finds.append(row["note"])
    return ", ".join([*figures, f"shown on {row['proven']}", *map(_escaped, finds)])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("_", "\\_").replace("*", "\\*").replace("<", "\\<")[:200]
