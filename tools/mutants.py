"""Change the package in one place at a time, and tell which changes the tests notice.

python tools/mutants.py draw --number 150 --seed 0 -o out/mutants.jsonl          in the lane ``mutants``
python tools/mutants.py run out/mutants.jsonl -o out/killed.jsonl [--checkout DIR] [--part 0/2] [--stages 2]

``draw`` takes a sample of what cosmic-ray can change in the packages that compute (``PACKAGES``): every module has a
turn before one has a second. ``run`` puts each change into a copy of the checkout and runs the tests of `make test`
until one fails: first those of the module, then of its folder, then all. A change that none notices is a survivor.
With another checkout its tests are asked, about the same changes of this one's package. What is in the output file is
not run again. ``tests/data/survivors.json`` has the reason why a survivor may live, by its changed line; the exit
status is 1 if one without a reason was found.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("passes", "partitioner", "quantizer", "verification")
#: By module and changed line, why no test need notice.
REASONS = ROOT / "tests" / "data" / "survivors.json"
#: Kinds of change that are not made: another number is mostly another effort, another variable mostly no program.
LEFT_OUT = re.compile(r"core/(NumberReplacer)|VariableReplacer|VariableInserter")
#: A change of a type is none of the program.
DECLARED = re.compile(r"^\s*(def|class|from|import|@)\b|->|^\s*\w+: ")
#: How long each stage may take until a change counts as one that never ends.
SECONDS = (300, 1200, 3600)
#: What every test process would import first: it is there before the process is split off.
IMPORTED = ("pytest", "torch", "torchao.quantization.pt2e", "executorch.backends.arm")
LEFT_BEHIND = shutil.ignore_patterns(".git", "out", "__pycache__", ".*_cache", ".hypothesis", "build", "dist")


def draw(number: int, seed: int) -> list[dict[str, Any]]:
    """Return a sample of changes, each with the whole text of its module."""
    chosen = random.Random(seed)
    modules = [path for package in PACKAGES for path in sorted((ROOT / "safe_arm" / package).rglob("*.py"))]
    modules = [path for path in modules if path.name != "__init__.py"]
    chosen.shuffle(modules)
    drawn: list[dict[str, Any]] = []
    for path in modules * (1 + number // len(modules)):
        change = _change_of(path, chosen, {row["text"] for row in drawn})
        if change is not None and len(drawn) < number:
            drawn.append({"number": len(drawn), "path": str(path.relative_to(ROOT)), **change})
    return drawn


def _change_of(path: Path, chosen: random.Random, known: set[str]) -> dict[str, str] | None:
    """Return a change that cosmic-ray can make to a module, every kind as likely as any other."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    names = [name for name in sorted(operator_names()) if not LEFT_OUT.search(name)]
    kinds = sorted({name.partition("_")[0] for name in names})
    text = path.read_text()
    for kind in chosen.sample(kinds, k=len(kinds)):
        of_kind = [name for name in names if name.partition("_")[0] == kind]
        for name in chosen.sample(of_kind, k=min(len(of_kind), 12)):
            for place in chosen.sample(range(8), k=8):
                changed = mutate_code(text.encode(), get_operator(name)(), place)
                if changed is None:
                    continue
                changed = changed if isinstance(changed, str) else changed.decode()
                lines = [line for line in changed.splitlines() if line not in text.splitlines()]
                if changed not in known and not any(DECLARED.search(line) for line in lines):
                    return {"operator": name, "text": changed, "line": lines[0].strip() if lines else ""}
    return None


def stages(path: str, checkout: Path) -> list[list[str]]:
    """Return which tests are asked about a module, those nearest first."""
    module = Path(path)
    folder = Path("tests", *module.parts[1:-1])
    alone = folder / f"test_{module.stem}.py"
    top = Path("tests", module.parts[1])
    found = [[str(alone)] if (checkout / alone).exists() else [], [str(top)], ["tests"]]
    return [stage for stage in found if stage]


def marker(checkout: Path) -> str:
    """Return the marker expression of a checkout's `make test`."""
    rules = (checkout / "Makefile").read_text()
    elsewhere = re.search(r"^ELSEWHERE = (.*)$", rules, re.MULTILINE)
    quick = re.search(r"^QUICK = (.*)$", rules, re.MULTILINE)
    assert quick is not None
    return quick[1].replace("$(ELSEWHERE)", elsewhere[1] if elsewhere else "")


def noticed(tests: list[str], copy: Path, expression: str, seconds: int) -> str:
    """Return the first test that fails, what else ended the run, or nothing."""
    said = copy / "said.txt"
    asked = ["-x", "-q", "-p", "no:cacheprovider", "-m", expression, *tests]
    process = multiprocessing.get_context("fork").Process(target=_tests, args=(asked, copy, said))
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        return "more time than allowed"
    if process.exitcode in (0, 5):
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said.read_text(), re.MULTILINE)
    return failed[1] if failed else f"status {process.exitcode}"


def _tests(asked: list[str], copy: Path, said: Path) -> None:
    """Run pytest in a copy of the checkout, and end this process with its status."""
    import pytest

    os.chdir(copy)
    os.environ |= {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    sys.path.insert(0, str(copy))
    sys.argv = ["pytest", *asked]
    with said.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    status = pytest.main(asked)
    sys.stdout.flush()
    os._exit(int(status))


def unexplained(verdicts: list[dict[str, Any]], reasons: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
    """Return the survivors that have no reason."""
    survivors = [verdict for verdict in verdicts if not verdict["by"]]
    return [each for each in survivors if each["line"] not in reasons.get(each["path"], {})]


def run(mutants: list[dict[str, Any]], checkout: Path, out: Path, part: tuple[int, int], upto: int) -> None:
    """Ask the tests of a checkout about each change, and write a line for each."""
    done = {json.loads(line)["number"] for line in out.read_text().splitlines()} if out.exists() else set()
    expression = marker(checkout)
    for each in IMPORTED:
        importlib.import_module(each)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(checkout, copy, ignore=LEFT_BEHIND)
        shutil.rmtree(copy / "safe_arm")
        shutil.copytree(ROOT / "safe_arm", copy / "safe_arm", ignore=LEFT_BEHIND)
        for mutant in mutants:
            if mutant["number"] in done or mutant["number"] % part[1] != part[0]:
                continue
            asked: list[str] = []
            start, place = time.monotonic(), copy / mutant["path"]
            whole = place.read_text()
            place.write_text(mutant["text"])
            for tests, seconds in zip(stages(mutant["path"], copy)[:upto], SECONDS, strict=False):
                asked.append(noticed(tests, copy, expression, seconds))
                if asked[-1]:
                    break
            place.write_text(whole)
            verdict = {name: mutant[name] for name in ("number", "path", "operator", "line")}
            verdict |= {"by": asked[-1], "stage": len(asked), "seconds": round(time.monotonic() - start)}
            with out.open("a") as file:
                file.write(json.dumps(verdict) + "\n")
            print(
                f"{verdict['seconds']:4} s  {mutant['number']:3}  {mutant['path']}  {verdict['by'] or 'SURVIVED'}",
                flush=True,
            )


def main() -> None:
    """Draw changes, or ask the tests about them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("--number", type=int, default=150)
    drawing.add_argument("--seed", type=int, default=0)
    running = commands.add_parser("run")
    running.add_argument("mutants", type=Path)
    running.add_argument("--checkout", type=Path, default=ROOT)
    running.add_argument("--part", default="0/1")
    running.add_argument("--stages", type=int, default=3, help="1: the module's tests alone; 2: its folder's too")
    for each in (drawing, running):
        each.add_argument("-o", "--out", type=Path, required=True)
    asked = parser.parse_args()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    if asked.command == "draw":
        rows = draw(asked.number, asked.seed)
        asked.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
        print(f"{len(rows)} changes of {len({row['path'] for row in rows})} modules in {asked.out}")
    else:
        mutants = [json.loads(line) for line in asked.mutants.read_text().splitlines()]
        number, _, parts = asked.part.partition("/")
        run(mutants, asked.checkout.resolve(), asked.out, (int(number), int(parts)), asked.stages)
        verdicts = [json.loads(line) for line in asked.out.read_text().splitlines()]
        left = unexplained(verdicts, json.loads(REASONS.read_text()))
        survive = sum(not each["by"] for each in verdicts)
        print(f"{len(verdicts)} changes: {survive} survive, {len(left)} of them without a reason")
        for each in left:
            print(f"{each['number']:3}  {each['path']}: {each['line']}")
        sys.exit(1 if left else 0)


if __name__ == "__main__":
    main()
