"""Run ExecuTorch's own Arm tests, as shipped in its wheel, through the stock classes and through ours, in shards.

    python tools/arm_suite/arm_suite.py                    all that needs neither a download nor a board
    python tools/arm_suite/arm_suite.py --processes 2      shards side by side, each with records of its own
    python tools/arm_suite/arm_suite.py --sample           the sample of CI: ours alone, beside what is kept

What has a result is not run again; --fresh forgets them. Results are lines of JSON in out/upstream/.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain, zip_longest
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "upstream"
#: One result a line: what came of a test under stock, ``reject`` and ``propagate``.
KEPT = Path(__file__).parent / "results"
SAMPLE = Path(__file__).parent / "sample.txt"
#: Tests of the sample's run that depend on their nets' weights, and what ``TEST_SEED`` is for them, one run each.
SEEDED = Path(__file__).parent / "seeded.txt"
SEEDS = (0, 4, 5)
POLICIES = ("reject", "propagate")
THROUGH = ("stock", *POLICIES)
#: Seconds that one test may take; the slowest takes a tenth.
LIMIT = 600.0
SEED = 14
#: Whole models: minutes each.
HEAVY = ("models/", "modules/")


def suite() -> Path:
    """Return the folder of the tests in the installed wheel."""
    spec = find_spec("executorch.backends.arm")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("there is no executorch here; make upstream-tests runs in the main environment")
    return Path(spec.submodule_search_locations[0]) / "test"


def pytest_command(folder: Path, *arguments: str) -> list[str]:
    """Return the command that runs the tests of a folder with our plugin, apart from this project's own settings."""
    own = ["-q", "-c", os.devnull, f"--rootdir={folder}", "--import-mode=prepend", "--continue-on-collection-errors"]
    return [sys.executable, "-m", "pytest", *own, "-p", "no:cacheprovider", "-p", "arm_suite_plugin", *arguments]


def environment(seed: int = 0) -> dict[str, str]:
    """Return the environment of a shard: the compilers, one thread, our tree, the plugin, upstream's seed for torch."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    places = os.pathsep.join((str(ROOT), str(Path(__file__).parent), str(ROOT / "tests" / "support")))
    ours = {"PATH": path, "PYTHONPATH": places, "TEST_SEED": str(seed)}
    return {**os.environ, **ours, "OMP_NUM_THREADS": "1", "SAFE_ARM_PROOF_CACHE": "0"}


def listing() -> dict[str, list[str]]:
    """Return the ids of all tests: ``host``'s, ``board``'s, and as ``lost`` the files that need packages not here."""
    found = OUT / f"collected-{version('executorch')}.txt"
    if not found.exists():
        partial = found.with_suffix(".partial")
        command = pytest_command(suite(), "--collect-only", "--list", str(partial), ".")
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
    """Return the ids in an order that has one of each file first, then another of each, drawn with a fixed seed.

    Whole models come last.
    """
    of_file: dict[str, list[str]] = defaultdict(list)
    for name in ids:
        of_file[name.partition("::")[0]].append(name)
    drawn = random.Random(SEED)
    for names in of_file.values():
        drawn.shuffle(names)
    light = [names for file, names in of_file.items() if not file.startswith(HEAVY)]
    heavy = [names for file, names in of_file.items() if file.startswith(HEAVY)]
    rounds = chain(zip_longest(*light), zip_longest(*heavy))
    return [name for name in chain.from_iterable(rounds) if name is not None]


def _lines(path: Path, offset: int = 0) -> list[dict[str, Any]]:
    """Return what a process has written into a record so far, without the line it is writing."""
    text = path.read_bytes()[offset:] if path.exists() else b""
    return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]


def _watch(process: subprocess.Popen[str], path: Path, offset: int) -> str:
    """Wait for a shard, and end it when a test has taken too long; return how it ended."""
    while process.poll() is None:
        time.sleep(0.5)
        last = (_lines(path, offset) or [{}])[-1]
        if "begun" in last and time.time() - last["begun"] > LIMIT:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"killed after {LIMIT:.0f} seconds"
    return f"the process ended with status {process.returncode}"


@dataclass(frozen=True)
class Records:
    """The results that one of several workers writes into a folder, of the tests of a suite, seeded alike."""

    folder: Path
    suite: Path
    worker: int = 0
    seed: int = 0

    def record(self, through: str) -> Path:
        return self.folder / f"{version('executorch')}-{through}-{self.worker}.jsonl"

    def results(self, through: str) -> dict[str, dict[str, Any]]:
        """Return what was recorded last of each test that has ended, by whichever worker."""
        records = sorted(self.folder.glob(f"{version('executorch')}-{through}-*.jsonl"))
        return {line["id"]: line for record in records for line in _lines(record) if "outcome" in line}

    def wanted(self, through: str, ids: list[str]) -> list[str]:
        """Return which of these tests have to be run.

        ``propagate`` runs those where under ``reject`` a class of ours took part and left an operator out, or that did
        not pass; else nothing was refused.
        """
        known, reject = self.results(through), self.results("reject")
        ids = [name for name in ids if name not in known]
        if through != "propagate":
            return ids
        ours = {name: reject[name] for name in ids if name in reject}
        ours = {name: of for name, of in ours.items() if of["partitioners"] + of["quantizers"]}
        return [name for name, of in ours.items() if of.get("outside") or of["outcome"] != "passed"]

    def run_shard(self, through: str, ids: list[str]) -> None:
        """Run tests in one process, and in another one after each that takes the process down with it."""
        record = self.record(through)
        select, output = (self.folder / f"{through}-{self.worker}.{kind}" for kind in ("select", "log"))
        while ids := [name for name in ids if name not in self.results(through)]:
            offset = record.stat().st_size if record.exists() else 0
            select.write_text("\n".join(ids))
            files = sorted({name.partition("::")[0] for name in ids})
            own = ("--through", through, "--record", str(record), "--select", str(select))
            command = pytest_command(self.suite, *own, *files)
            with output.open("w") as log:
                streams = {"stdout": log, "stderr": log, "text": True}
                process = subprocess.Popen(
                    command, cwd=self.suite, env=environment(self.seed), start_new_session=True, **streams
                )
                ending = _watch(process, record, offset)
            lines = _lines(record, offset)
            ended = {line["id"] for line in lines if "outcome" in line}
            lost = [line["id"] for line in lines if line["id"] not in ended] or ([] if ended else ids)
            nothing = {"outcome": "died", "why": ending, "seconds": 0.0, "partitioners": 0, "quantizers": 0}
            with record.open("a") as file:
                file.writelines(json.dumps({"id": name, **nothing}) + "\n" for name in dict.fromkeys(lost))

    def run_turn(self, through: str, ids: list[str]) -> None:
        """Run those of these tests that have no result yet, and print how many and how long."""
        if chosen := self.wanted(through, ids):
            started = time.monotonic()
            self.run_shard(through, chosen)
            print(f"{through:9} {len(chosen):4} tests {time.monotonic() - started:6.0f} s", flush=True)


def run(folder: Path, ids: list[str], size: int, processes: int) -> None:
    """Run tests shard by shard, through ours and through stock."""
    workers: SimpleQueue[Records] = SimpleQueue()
    for number in range(processes):
        workers.put(Records(folder, suite(), number))

    def turns(shard: list[str]) -> None:
        worker = workers.get()
        for through in ("reject", "stock", "propagate"):
            worker.run_turn(through, shard)
        workers.put(worker)

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(turns, [ids[begin : begin + size] for begin in range(0, len(ids), size)]))


def todays(of: Sequence[Any], every: int, day: int) -> list[Any]:
    """Return one in so many, other ones every day."""
    return [each for number, each in enumerate(of) if (number + day) % every == 0]


def check_sample(folder: Path, every: int = 1) -> int:
    """Run the sample through ours and compare with what is kept; return how many tests end otherwise.

    Tests that depend on their weights are run once for each seed, of a part of the sample for that of the day.
    """
    day = int(time.time() // 86400)
    ids, seeded = todays(SAMPLE.read_text().splitlines(), every, day), SEEDED.read_text().splitlines()
    seeds = todays(SEEDS, min(every, len(SEEDS)), day)
    others = _run_and_compare(Records(folder, suite()), ids)
    for seed in seeds:
        others += _run_and_compare(Records(folder / f"seed-{seed}", suite(), seed=seed), seeded)
    count = len(ids) + len(seeds) * len(seeded)
    print(f"{count} of upstream's tests through ours, {others} not as they were")
    return others


def _run_and_compare(records: Records, ids: list[str]) -> int:
    from arm_suite_table import read

    _emptied(records.folder)
    records.run_shard("reject", ids)
    kept = read(version("executorch")).outcomes
    found = records.results("reject")
    others = [name for name in ids if found[name]["outcome"] != kept[name][THROUGH.index("reject")]]
    for name in others:
        outcome, why = found[name]["outcome"], found[name].get("why", "")
        print(f"{name}, seed {records.seed}: {kept[name][1]} is kept, now {outcome}: {why}")
    return len(others)


def _emptied(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.*"):
        path.unlink()


def main() -> int:
    """Run the tests, or the sample; return 1 if one of the sample ends otherwise than is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shard", type=int, default=200, metavar="N", help="tests a process")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="shards side by side")
    parser.add_argument("--match", default="", help="only tests with this in their ids")
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--boards", action="store_true", help="those for boards, as far as they come without one")
    parser.add_argument("--sample", action="store_true", help="run the sample and compare it with what is kept")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of the sample one in N, others every day")
    options = parser.parse_args()
    if options.sample:
        return int(check_sample(OUT.with_name("upstream-sample"), options.every) > 0)
    folder, kind = (OUT / "boards", "board") if options.boards else (OUT, "host")
    folder.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        _emptied(folder)
    ids = [name for name in spread(listing()[kind]) if options.match in name]
    run(folder, ids, options.shard, options.processes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
