"""Run numbered cases, each in a process of its own, and write what came of each as a line of JSON."""

import json
import logging
import os
import signal
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safe_arm.jobs.job_processes import run_jobs
from safe_arm.jobs.row import Job, JobEnded
from tools.fuzz.cases import Case
from tools.fuzz.outcome import Outcome


@dataclass
class Result:
    """What came of one case; None for stock if it was not run."""

    number: int
    case: Case
    ours: Outcome
    stock: Outcome | None

    def to_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))


def act(arguments: Sequence[str]) -> None:
    """Run a case in this process, which ends when it takes too long."""
    import torch

    from tools.fuzz import properties, toolchain

    by, case, result, limit = arguments
    signal.alarm(int(limit))
    os.environ["SAFE_ARM_PROOF_CACHE"] = "0"
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    run = properties.run if by == "ours" else toolchain.through_stock
    Path(result).write_text(json.dumps(asdict(run(Case.from_json(case)))))


def over_processes(
    cases: Iterable[tuple[int, Case]], processes: int, stock_every: int, limit: float = 120.0
) -> Iterator[Result]:
    """Yield the results of numbered cases as they come; stock runs those whose number ``stock_every`` divides."""
    numbered = dict(cases)
    outcomes: dict[int, dict[str, Outcome]] = defaultdict(dict)
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for number, case in numbered.items():
            for by in ("ours", "stock") if stock_every and number % stock_every == 0 else ("ours",):
                result = Path(folder, f"{number}-{by}.json")
                arguments = by, case.to_json(), str(result), f"{limit:.0f}"
                jobs.append(Job(f"{number}", arguments, result, labels={"by": by}))
        left = Counter(job.name for job in jobs)
        for job, ended in run_jobs(jobs, processes, act, "tools.fuzz.properties"):
            found = outcomes[int(job.name)]
            found[job.labels["by"]] = _outcome(job, ended, limit)
            left[job.name] -= 1
            if not left[job.name]:
                yield Result(int(job.name), numbered[int(job.name)], found["ours"], found.get("stock"))


def _outcome(job: Job, ended: JobEnded, limit: float) -> Outcome:
    if ended.result:
        return Outcome(**json.loads(job.result.read_text()))
    if ended.ended.status == -signal.SIGALRM:
        outcome = Outcome("slow", "run", f"more than {limit:.0f} s")
    else:
        outcome = Outcome("died", "run", f"the process ended with {ended.ended.status}")
    outcome.seconds = {"run": ended.seconds}
    return outcome


def summary(lines: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Count verdicts in results as JSON has them: of ours, of stock and of both on the cases that stock ran.

    On those that ours ran under ``propagate``, also multiply-accumulates in delegates that are right.
    """
    ours, stock, both, seconds = Counter[str](), Counter[str](), Counter[str](), 0.0
    fallbacks, stages, macs, fewer = Counter[str](), Counter[str](), Counter[str](), list[int]()
    for line in lines:
        ours[line["ours"]["verdict"]] += 1
        fallbacks[_extent(line["ours"])] += 1
        stages.update(line["ours"]["fallbacks"])
        seconds += sum(line["ours"]["seconds"].values())
        if line["stock"] is not None:
            stock[line["stock"]["verdict"]] += 1
            both[f"stock {line['stock']['verdict']}, ours {line['ours']['verdict']}"] += 1
            if line["case"]["config"]["policy"] == "propagate":
                macs.update({by: line[by]["macs"] for by in ("stock", "ours")})
                fewer += [line["number"]] if line["ours"]["macs"] < line["stock"]["macs"] else []
    return {
        "cases": sum(ours.values()), "ours": dict(ours), "stock": dict(stock), "same cases": dict(both),
        "MACs delegated rightly, under propagate": {**macs, "ours fewer in": fewer},
        "of ours": dict(fallbacks), "operators that fell back, by stage": dict(stages),
        "seconds of ours": round(seconds),
    }  # fmt: skip


def _extent(ours: dict[str, Any]) -> str:
    if not ours["delegates"]:
        return "nothing delegated"
    return "some operators fell back" if ours["fallbacks"] else "all delegated"


def read(path: Path) -> list[dict[str, Any]]:
    """Return the results in a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]
