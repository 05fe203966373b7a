"""Keep what a run of upstream's tests found, and write docs/upstream-tests.md from what is kept.

python tools/arm_suite/arm_suite_table.py             after a run: keep its results, write the page
python tools/arm_suite/arm_suite_table.py --page      the page alone
"""

import argparse
import json
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from arm_suite import KEPT, OUT, POLICIES, ROOT, SAMPLE, THROUGH, Records, listing, spread, suite

PAGE = ROOT / "docs" / "upstream-tests.md"
REASONS = Path(__file__).parent / "reasons.json"
#: How an outcome is kept; a dash is for what was not run.
MARKS = {"passed": "P", "failed": "F", "xfailed": "x", "xpassed": "X", "skipped": "s", "died": "D", "": "-"}
OUTCOMES = {mark: outcome for outcome, mark in MARKS.items()}
#: How many tests CI runs.
SAMPLE_SIZE = 300
#: Seconds of CPU that one of them may take.
SAMPLE_SECONDS = 1.5


@dataclass(frozen=True)
class Difference:
    """A test that ends otherwise under ours with a policy than under stock."""

    id: str
    policy: str
    stock: str
    ours: str


@dataclass(frozen=True)
class Reason:
    """Why tests whose ids an expression fits end otherwise under ours than under stock; the kind is of ``KINDS``."""

    tests: str
    stock: str
    ours: str
    kind: str
    reason: str

    def fits(self, difference: Difference) -> bool:
        same_ends = (self.stock, self.ours) == (difference.stock, difference.ours)
        return same_ends and bool(re.search(self.tests, difference.id))


#: What a difference may be, as the page puts it.
KINDS = {
    "gain": "ours gets right what stock does not",
    "stock-wrong": "the test asserts what stock does wrong",
    "left-out": "ours leaves on the CPU what stock delegates correctly",
}


@dataclass(frozen=True)
class Kept:
    """What is kept of a run of a release's tests."""

    release: str
    #: By folder, how many tests need nothing, end on a board or a runner, and how many files need other packages.
    collected: dict[str, dict[str, int]]
    #: By test, how it ended under stock and each policy; empty where it was not run.
    outcomes: dict[str, tuple[str, ...]]
    #: Of CPU that a test took under ``reject``, on average.
    seconds: float


def kept_in(release: str) -> Path:
    """Return the file with the outcomes of a release."""
    return KEPT / f"{release}.txt"


def keep(release: str) -> None:
    """Write the outcomes of the last run, one test a line, below a line of JSON that has the counts."""
    records = Records(OUT, suite())
    found = {through: records.results(through) for through in THROUGH}
    collected: dict[str, Counter[str]] = defaultdict(Counter)
    for kind, names in listing().items():
        for name in names:
            collected[name.partition("/")[0] if "/" in name else "(others)"][kind] += 1
    lines = []
    for name in sorted(found["reject"]):
        ended = [found[through].get(name, {}).get("outcome", "") for through in THROUGH]
        lines.append("".join(MARKS[each] for each in ended) + f" {name}\n")
    seconds = round(sum(each["seconds"] for each in found["reject"].values()) / len(found["reject"]), 2)
    KEPT.mkdir(exist_ok=True)
    head = json.dumps({"collected": {folder: dict(of) for folder, of in sorted(collected.items())}, "seconds": seconds})
    kept_in(release).write_text(head + "\n" + "".join(lines))


def read(release: str) -> Kept:
    """Return what is kept of a release's tests."""
    head, *lines = kept_in(release).read_text().splitlines()
    of_test = (line.partition(" ") for line in lines)
    counts = json.loads(head)
    outcomes = {name: tuple(OUTCOMES[mark] for mark in marks) for marks, _, name in of_test}
    return Kept(release, counts["collected"], outcomes, counts["seconds"])


def reasons() -> tuple[Reason, ...]:
    """Return the reasons that are written down."""
    return tuple(Reason(**entry) for entry in json.loads(REASONS.read_text()))


def differences(kept: Kept) -> Iterator[Difference]:
    """Yield each test that ends otherwise under ours than under stock, for each policy."""
    for name, (stock, *ours) in kept.outcomes.items():
        for policy, outcome in zip(POLICIES, ours, strict=True):
            if stock and outcome and outcome != stock:
                yield Difference(name, policy, stock, outcome)


def reason_of(difference: Difference, known: Iterable[Reason]) -> Reason | None:
    """Return the first reason that fits a difference."""
    return next((each for each in known if each.fits(difference)), None)


def _table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    heads = list(heads)
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    return [*lines, *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows), ""]


def _coverage(kept: Kept) -> list[str]:
    run, passed = Counter[str](), Counter[str]()
    for name, (_, reject, _) in kept.outcomes.items():
        run[name.partition("/")[0]] += 1
        passed[name.partition("/")[0]] += reject == "passed"
    rows = []
    for folder, of in kept.collected.items():
        board, lost = of.get("board", 0), of.get("lost", 0)
        rows.append((f"`{folder}`", of.get("host", 0) + board, board, lost, run[folder], passed[folder]))
    total = [sum(row[i] for row in rows) for i in range(1, 6)]
    heads = ("folder", "tests", "for a board or a runner", "files that need other packages", "run", "pass with ours")
    return _table(heads, [*rows, ("all", *total)])


def _outcomes(kept: Kept) -> list[str]:
    counts = [Counter(ended[i] for ended in kept.outcomes.values()) for i in range(len(THROUGH))]
    seen = [outcome for outcome in MARKS if outcome and any(of[outcome] for of in counts)]
    rows = [(outcome, *(of[outcome] for of in counts)) for outcome in seen]
    return _table(("outcome", *THROUGH), [*rows, ("not run", *(of[""] for of in counts))])


def _differences(kept: Kept, known: tuple[Reason, ...]) -> list[str]:
    of_reason: dict[Reason | None, list[Difference]] = defaultdict(list)
    for each in differences(kept):
        of_reason[reason_of(each, known)].append(each)
    lines = []
    for reason, found in of_reason.items():
        tests = list(dict.fromkeys(each.id for each in found))
        title = f"{KINDS[reason.kind]}: {reason.reason}" if reason else "without a reason yet"
        policies = "` and `".join(dict.fromkeys(each.policy for each in found))
        lines.append(f"* **{found[0].stock} with stock, {found[0].ours} under `{policies}`** ({len(tests)}): {title}")
        lines += [f"  * `{test}`" for test in tests]
    return [*(lines or ["None."]), ""]


def page(kept: Kept, known: tuple[Reason, ...]) -> str:
    """Return the page of the docs about a run."""
    host = sum(of.get("host", 0) for of in kept.collected.values())
    hours = f"{kept.seconds * host / 3600:.1f}"
    also = [name for name, (stock, reject, _) in kept.outcomes.items() if stock == reject in ("failed", "died")]
    lines = [
        "# Do ExecuTorch's own tests pass?",
        "",
        _prose(
            "Nearly all of them pass with safe_arm's classes as with stock's, and every difference below has a reason.",
            "ExecuTorch's wheel ships the tests of its Arm backend. `make upstream-tests` runs those of",
            f"{kept.release} that need neither a download nor a board, with safe_arm's classes (*ours*) wherever they",
            "ask for stock partitioners and quantisers, from the factories or by name. An interrupted run continues",
            "where it stopped. `python tools/arm_suite/arm_suite_table.py` wrote this page from the results.",
        ),
        *_coverage(kept),
        _prose(
            f"All {host} are run."
            if len(kept.outcomes) == host
            else f"{len(kept.outcomes)} of {host} are run so far: part of a draw with a fixed seed, whole models last.",
            f"Together they take about {hours} hours of CPU under one policy.",
        ),
        "## How do they end?",
        _prose(
            "`xfailed` is an expected failure that upstream has marked; `xpassed` is one that passed. `propagate` runs",
            "only the tests in which `reject` left an operator out.",
        ),
        *_outcomes(kept),
        "## Where do ours and stock differ?",
        *_differences(kept, known),
        "## Which tests fail with stock as well?",
        *([f"* `{name}`" for name in also] or ["None."]),
    ]
    return "\n".join(lines) + "\n"


def _prose(*parts: str) -> str:
    return textwrap.fill(" ".join(parts), 150) + "\n"


def draw_sample(release: str) -> list[str]:
    """Return the sample of CI: of what is kept and passed, what ours took part in before the rest, nothing dear."""
    ours = Records(OUT, suite()).results("reject")
    passed = [name for name in read(release).outcomes if ours[name]["outcome"] == "passed"]
    cheap = [name for name in spread(passed) if ours[name]["seconds"] <= SAMPLE_SECONDS]
    cheap.sort(key=lambda name: not ours[name]["partitioners"] + ours[name]["quantizers"])
    return sorted(cheap[:SAMPLE_SIZE])


def main() -> None:
    """Keep the results, draw the sample and write the page, as the options say."""
    from importlib.metadata import version

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="write the page alone, from what is kept")
    parser.add_argument("--draw", action="store_true", help="draw the sample of CI anew")
    options = parser.parse_args()
    release = version("executorch")
    if not options.page:
        keep(release)
    if options.draw:
        SAMPLE.write_text("\n".join(draw_sample(release)) + "\n")
    PAGE.write_text(page(read(release), reasons()))


if __name__ == "__main__":
    main()
