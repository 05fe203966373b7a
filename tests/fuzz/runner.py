"""Run numbered cases over processes, and write what came of each as a line of JSON."""

import json
import queue
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.cases import Case
from tests.fuzz.outcome import Outcome
from tests.fuzz.worker_process import Worker


@dataclass
class Result:
    """What came of one case; None for stock if it was not run."""

    number: int
    case: Case
    ours: Outcome
    stock: Outcome | None

    def to_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))


def over_processes(
    cases: Iterable[tuple[int, Case]], processes: int, stock_every: int, limit: float = 120.0
) -> Iterator[Result]:
    """Yield the results of numbered cases as they come; stock runs those whose number ``stock_every`` divides."""
    source, done, lock = iter(cases), queue.Queue[Result | BaseException | None](), threading.Lock()

    def work() -> None:
        worker = Worker(limit)
        try:
            while True:
                with lock:
                    number, case = next(source, (0, None))
                if case is None:
                    break
                ours = worker.run("ours", case)
                asked = stock_every and number % stock_every == 0
                done.put(Result(number, case, ours, worker.run("stock", case) if asked else None))
        except BaseException as error:  # the caller raises it
            done.put(error)
        finally:
            worker.close()
            done.put(None)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(processes)]
    for thread in threads:
        thread.start()
    left = processes
    while left:
        result = done.get()
        if isinstance(result, BaseException):
            raise result
        if result is None:
            left -= 1
        else:
            yield result


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
