"""Run ExecuTorch's own Arm tests, as shipped in its wheel, through the stock classes and through ours, in shards.

    python tests/upstream/arm_suite.py                      all that needs neither a download nor a board
    python tests/upstream/arm_suite.py --seconds 3600       as much of it as an hour takes: every file first
    python tests/upstream/arm_suite.py --sample             the sample of CI: ours alone, beside the results that are kept

What has a result is not run again; --fresh forgets them. Results are lines of JSON, by what was run through, in out/upstream/.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "upstream"
#: One result a line: what came of a test under stock, ``reject`` and ``propagate``.
KEPT = Path(__file__).parent / "results"
SAMPLE = Path(__file__).parent / "sample.txt"
POLICIES = ("reject", "propagate")
#: Seconds that one test may take; the slowest takes a tenth.
LIMIT = 600.0
SEED = 14


def suite() -> Path:
    """Return the folder of the tests in the installed wheel."""
    spec = find_spec("executorch.backends.arm")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("there is no executorch here; make upstream-tests runs in the main environment")
    return Path(spec.submodule_search_locations[0]) / "test"


def pytest_command(*arguments: str) -> list[str]:
    """Return the command that runs upstream's tests with our plugin, apart from this project's own settings."""
    folder = str(suite())
    own = ("-q", "-c", os.devnull, "--rootdir", folder, "--import-mode=prepend", "-p", "no:cacheprovider")
    return [
        sys.executable,
        "-m",
        "pytest",
        *own,
        "-p",
        "arm_suite_plugin",
        "--continue-on-collection-errors",
        *arguments,
    ]


def environment() -> dict[str, str]:
    """Return the environment of a shard: the compilers on PATH, one thread, our tree and the plugin importable."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    places = os.pathsep.join((str(ROOT), str(Path(__file__).parent)))
    return {**os.environ, "PATH": path, "PYTHONPATH": places, "OMP_NUM_THREADS": "1", "SAFE_ARM_PROOF_CACHE": "0"}


def listing() -> dict[str, list[str]]:
    """Return the ids of all tests: ``host``'s, ``board``'s, and as ``lost`` the files that need packages not here."""
    found = OUT / f"collected-{version('executorch')}.txt"
    if not found.exists():
        partial = found.with_suffix(".partial")
        command = pytest_command("--collect-only", "--list", str(partial), ".")
        done = subprocess.run(command, cwd=suite(), env=environment(), capture_output=True, text=True)
        lost = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("ERROR ")]
        with partial.open("a") as file:
            file.writelines(f"lost {name}\n" for name in lost)
        partial.rename(found)
    kinds: dict[str, list[str]] = defaultdict(list)
    for line in found.read_text().splitlines():
        kind, _, name = line.partition(" ")
        kinds[kind].append(name)
    return kinds


def spread(ids: Iterable[str]) -> list[str]:
    """Return the ids in an order that has one of each file first, then another of each, drawn with a fixed seed."""
    of_file: dict[str, list[str]] = defaultdict(list)
    for name in ids:
        of_file[name.partition("::")[0]].append(name)
    drawn = random.Random(SEED)
    for names in of_file.values():
        drawn.shuffle(names)
    rounds = zip_longest(*of_file.values())
    return [name for name in chain.from_iterable(rounds) if name is not None]


def record_of(through: str) -> Path:
    """Return the file that has the results of one way through."""
    return OUT / f"{version('executorch')}-{through}.jsonl"


def results(through: str) -> dict[str, dict[str, Any]]:
    """Return what was recorded last of each test that has ended."""
    path = record_of(through)
    lines = (json.loads(line) for line in path.read_text().splitlines()) if path.exists() else ()
    return {line["id"]: line for line in lines if "outcome" in line}


def wanted(through: str, ids: list[str]) -> list[str]:
    """Return which of these tests have to be run: ours only where a class of ours takes part.

    ``propagate`` is run where ``reject`` left an operator out or ended otherwise than stock; else there was nothing to refuse.
    """
    known, stock = results(through), results("stock")
    ids = [name for name in ids if name not in known]
    if through == "stock":
        return ids
    ids = [name for name in ids if (base := stock.get(name)) and base["partitioners"] + base["quantizers"]]
    if through == "reject":
        return ids
    reject = results("reject")
    return [
        name for name in ids
        if (ours := reject.get(name)) and (ours.get("outside") or ours["outcome"] != stock[name]["outcome"])
    ]  # fmt: skip


def _watch(process: subprocess.Popen[str], path: Path) -> str:
    """Wait for a shard, and end it when a test has taken too long; return how it ended."""
    while process.poll() is None:
        time.sleep(0.5)
        lines = path.read_text().splitlines() if path.exists() else []
        last = json.loads(lines[-1]) if lines else {}
        if "begun" in last and time.time() - last["begun"] > LIMIT:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"killed after {LIMIT:.0f} seconds"
    return f"the process ended with status {process.returncode}"


def run_shard(through: str, ids: list[str]) -> None:
    """Run tests in one process, and in another one after each that takes the process down with it."""
    record = record_of(through)
    while ids := wanted(through, ids):
        select, partial = OUT / f"{through}.select", OUT / f"{through}.partial"
        select.write_text("\n".join(ids))
        partial.unlink(missing_ok=True)
        files = sorted({name.partition("::")[0] for name in ids})
        command = pytest_command("--through", through, "--record", str(partial), "--select", str(select), *files)
        with (OUT / f"{through}.log").open("w") as log:
            process = subprocess.Popen(
                command, cwd=suite(), env=environment(), stdout=log, stderr=log, text=True, start_new_session=True
            )
            ending = _watch(process, partial)
        lines = [json.loads(line) for line in partial.read_text().splitlines()] if partial.exists() else []
        ended = {line["id"] for line in lines if "outcome" in line}
        lost = [line["id"] for line in lines if line["id"] not in ended] or ([] if ended else ids)
        nothing = {"seconds": 0.0, "partitioners": 0, "quantizers": 0}
        lines += [{"id": name, "outcome": "died", "why": ending, **nothing} for name in dict.fromkeys(lost)]
        with record.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines if "outcome" in line)


def run(ids: list[str], size: int, deadline: float) -> None:
    """Run tests shard by shard, each through stock and then ours, until all are done or the time is over."""
    for begin in range(0, len(ids), size):
        for through in ("stock", *POLICIES):
            if time.monotonic() > deadline:
                return
            shard = wanted(through, ids[begin : begin + size])
            if shard:
                started = time.monotonic()
                run_shard(through, shard)
                print(f"{begin:6} {through:9} {len(shard):4} tests {time.monotonic() - started:6.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after this time, between two shards")
    parser.add_argument("--shard", type=int, default=200, metavar="N", help="tests a process")
    parser.add_argument("--match", default="", help="only tests with this in their ids")
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        for path in OUT.iterdir():
            path.unlink()
    ids = [name for name in spread(listing()["host"]) if options.match in name]
    run(ids, options.shard, time.monotonic() + options.seconds)


if __name__ == "__main__":
    main()
