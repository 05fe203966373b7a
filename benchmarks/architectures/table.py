"""The page of the docs about the architectures, from the record of a run."""

from __future__ import annotations

from typing import Any

from benchmarks.architectures.measure import POLICIES, STOCK

Row = dict[str, Any]
_PAGE = """# Whole architectures

{count} architectures at small sizes, from timm, torchvision and transformers and by hand (`benchmarks/architectures/`),
through stock ExecuTorch and through safe_arm under both policies, every delegate verified while lowering. Weights and
the statistics of batch norms are random with a fixed seed, so that zero points leave the ends. Written from the record
of `make architectures`.

*Right* is: after lowering, no delegate differs from the quantised graph in double, beyond
`safe_arm/verification/tolerances.py`, on inputs of the calibrated range and of three times that. The share is of the
net's multiply-accumulates that are in delegates; "rightly" does not count those in delegates that are wrong. What is
left of differences in the outputs stands behind it.

{totals}
{tables}"""


def page(rows: list[Row]) -> str:
    """Return the page.

    Args:
        rows: the results, as ``measure.as_json`` gives them.
    """
    by_profile: dict[str, dict[str, dict[str, Row]]] = {}
    for row in rows:
        by_profile.setdefault(row["profile"], {}).setdefault(row["net"], {})[row["by"]] = row
    count = max(map(len, by_profile.values()), default=0)
    totals = "\n".join(_totals(profile, nets) for profile, nets in by_profile.items())
    tables = "\n".join(_table(profile, nets) for profile, nets in by_profile.items())
    return _PAGE.format(count=count, totals=totals, tables=tables)


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
            f"* {profile}, {by}: {count['right']} of {len(rows)} right, {count['wrong']} wrong, {count['died']} died; "
            f"{mean:.1f} % of the MACs delegated rightly, mean over the nets"
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
            "dies: "
            + row["reason"].replace("|", "\\|").replace("_", "\\_").replace("*", "\\*").replace("<", "\\<")[:110]
        )
    share = f"{100 * row['delegated'] / row['macs']:.1f} %" if row["macs"] else "no MACs"
    wrong = "" if row["outcome"] == "right" else f"**wrong**, {row['worst']:g} codes; "
    demoted = f", {len(row['demoted'])} demoted" if row["demoted"] else ""
    left = f", {row['worst']:g} code{'s' * (row['worst'] > 1)} at the output" if row["worst"] and not wrong else ""
    return f"{wrong}{share}{demoted}{left}"
