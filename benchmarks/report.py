"""Measure the cost of the report: its share of lowering, the page's size, and how soon a browser paints it.

python -m benchmarks.report [--rounds 5] [--blocks 146] [--nodes 5000]

The pages are of made-up reports, one as most nets are and one half fallbacks; the lowering is of a residual net.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import click
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from rich.console import Console
from rich.table import Table

from benchmarks.nets import residual
from benchmarks.protocol import lower, quantised
from benchmarks.reports import large_report
from safe_arm import SafeArmPartitioner
from safe_arm.core.record import Report
from safe_arm.partitioner import session
from safe_arm.report.files import write_report

PROFILE = "TOSA-1.0+INT"
BROWSER = Path(__file__).parents[1] / "tools" / "browser.sh"
PAINTS = "() => performance.getEntriesByName('first-contentful-paint').map(paint => paint.startTime)"


@click.command()
@click.option("--rounds", default=5, show_default=True, help="How often each page is opened; medians are printed.")
@click.option(
    "--blocks", default=146, show_default=True, help="Residual blocks of the net that is lowered; 0 for none."
)
@click.option("--nodes", default=5000, show_default=True, help="Nodes of the made-up reports.")
def main(rounds: int, blocks: int, nodes: int) -> None:
    """Measure what the report costs."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    reports = {f"{nodes} nodes": large_report(nodes), f"{nodes} nodes, half fallbacks": large_report(nodes, every=2)}
    if blocks:
        reports[f"residual-{blocks}"] = _lowered(blocks)
    table = Table(
        "report", "nodes", "written [s]", "size [MB]", "first paint [s]", "graph drawn [s]", "all expanded [s]"
    )
    for name, report in reports.items():
        table.add_row(name, *_row(report, rounds))
    Console(width=120).print(table)


def _lowered(blocks: int) -> Report:
    """Lower a net, and print how much of that its record took."""
    program = quantised(*residual(blocks), PROFILE)
    partitioner = SafeArmPartitioner(TosaCompileSpec(PROFILE))
    spent: list[float] = []
    original = session.report_of
    session.report_of = _timed(original, spent)
    try:
        begun = time.perf_counter()
        lower(program, partitioner)
        total = time.perf_counter() - begun
    finally:
        session.report_of = original
    share = f"{100 * sum(spent) / total:.2f} %"
    print(f"lowering residual-{blocks}: {total:.1f} s, of which the record {sum(spent):.3f} s, {share}")
    return partitioner.report


def _timed(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        begun = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            spent.append(time.perf_counter() - begun)

    return run


def _row(report: Report, rounds: int) -> list[str]:
    from playwright.sync_api import sync_playwright

    browser = subprocess.run([BROWSER], check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        path = Path(directory) / "report.html"
        begun = time.perf_counter()
        write_report(report, path)
        written = time.perf_counter() - begun
        seen = [_opened(playwright, browser, path) for _ in range(rounds)]
        size = path.stat().st_size / 1e6
    medians = [median(column) for column in zip(*seen, strict=True)]
    return [str(len(report.verdicts)), f"{written:.2f}", f"{size:.2f}", *(f"{seconds:.2f}" for seconds in medians)]


def _opened(playwright: Any, browser: str, path: Path) -> tuple[float, float, float]:
    """Open a page in a browser that has just started; return when it was painted, when drawn, and how long all took."""
    started = playwright.chromium.launch(executable_path=browser)
    page = started.new_context(offline=True, viewport={"width": 1440, "height": 900}).new_page()
    page.goto(path.as_uri())
    page.wait_for_selector('body[data-drawn="1"]', timeout=120_000)
    drawn = page.evaluate("performance.now()") / 1000
    (painted,) = page.evaluate(PAINTS)
    begun = time.perf_counter()
    page.evaluate("view.folded.clear(); redraw()")
    page.wait_for_selector('body[data-drawn="2"]', timeout=120_000)
    expanded = time.perf_counter() - begun
    started.close()
    return painted / 1000, drawn, expanded


if __name__ == "__main__":
    main()
