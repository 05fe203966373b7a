"""Run the fuzzer: ``python -m tools.fuzz --cases 1000 --seed 1``."""

import argparse
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.fuzz.cases import Case
from tools.fuzz.runner import Result, over_processes, read, summary
from tools.fuzz.scripts import script_of

BAD = ("wrong", "died", "slow")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="which ones; the same seed gives the same cases")
    parser.add_argument("--start", type=int, default=0, help="the first; --start N --cases 1 replays case N")
    parser.add_argument("--generator", choices=("grammar", "nnsmith", "operators", "modules"), default="grammar")
    parser.add_argument("--replay", type=Path, help="run the cases of this file of JSON lines instead")
    parser.add_argument("--stock-every", type=int, default=10, help="run every Nth through stock too; 0 for none")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that a case may take")
    parser.add_argument("--out", type=Path, help="write a line of JSON for each case, behind those that it has")
    parser.add_argument("--scripts", type=Path, help="leave a script of each new failure here")
    parser.add_argument("--generate", action="store_true", help="write the cases to --out and run none")
    return parser.parse_args()


def _cases(options: argparse.Namespace, known: set[int]) -> Iterator[tuple[int, Case]]:
    which = options.seed, options.cases, options.start
    if options.replay is not None:
        found = ((line["number"], Case.from_dict(line["case"])) for line in read(options.replay))
        found = (each for each in found if options.start <= each[0] < options.start + options.cases)
    elif options.generator == "grammar":
        found = importlib.import_module("tools.fuzz.batches").numbered(*which)
    elif options.generator == "nnsmith":
        found = importlib.import_module("tools.fuzz.nnsmith_nets").numbered(*which)
    else:
        found = importlib.import_module("tools.fuzz.pytorch_samples").numbered(options.generator, *which)
    return ((number, case) for number, case in found if number not in known)


def main() -> int:
    """Return 1 if anything of ours failed."""
    options = _arguments()
    known = {line["number"] for line in read(options.out)} if options.out and options.out.exists() else set()
    if options.generate:
        cases = ({"number": number, "case": case.to_dict()} for number, case in _cases(options, set()))
        options.out.write_text("".join(f"{json.dumps(each)}\n" for each in cases))
        return 0
    print(f"seed {options.seed}, cases {options.start} to {options.start + options.cases - 1}", flush=True)
    lines, signatures = [], set()
    cases = _cases(options, known)
    for result in over_processes(cases, options.processes, options.stock_every, options.limit):
        lines.append(result.to_dict())
        if options.out:
            with options.out.open("a") as file:
                file.write(f"{json.dumps(lines[-1])}\n")
        if result.ours.verdict in BAD:
            ours = result.ours
            print(f"case {result.number}: {ours.verdict} in {ours.stage}: {ours.detail}", flush=True)
            if options.scripts and ours.signature not in signatures:
                signatures.add(ours.signature)
                _leave_script(options, result)
    print(json.dumps(summary(lines), indent=2))
    return int(any(line["ours"]["verdict"] in BAD for line in lines))


def _leave_script(options: argparse.Namespace, result: Result) -> None:
    options.scripts.mkdir(parents=True, exist_ok=True)
    path = options.scripts / f"test_{options.generator}_{options.seed}_{result.number}.py"
    path.write_text(script_of(result.case, result.ours, f"seed {options.seed}, case {result.number}"))
    print(f"  {path}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
