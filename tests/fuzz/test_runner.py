"""Cases run in processes; a process that dies or hangs is an outcome, and the next case runs."""

import json
import runpy

import pytest
from interpreter import ROOT, python

from tools.fuzz.cases import Case, Config, Input, one_line
from tools.fuzz.outcome import Outcome
from tools.fuzz.runner import over_processes, summary
from tools.fuzz.scripts import script_of

ADD = Case(one_line("x0 + x0"), (Input((2, 3)),), Config("INT"))
ENDS = Case("import os\nos._exit(3)\n", (Input((2,)),))
HANGS = Case("while True:\n    pass\n", (Input((2,)),))


@pytest.fixture(autouse=True)
def this_checkout(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_a_process_that_ends_or_hangs_is_an_outcome_and_the_next_case_runs():
    results = list(over_processes(enumerate([ENDS, HANGS, ADD]), 1, 2, limit=10))
    assert [each.ours.verdict for each in results] == ["died", "slow", "right"]
    assert results[0].ours.detail == "the process ended with 3"
    assert [each.stock and each.stock.verdict for each in results] == ["died", None, "right"]
    counted = summary(each.to_dict() for each in results)
    assert counted["cases"] == 3
    assert counted["same cases"] == {"stock died, ours died": 1, "stock right, ours right": 1}


def test_the_command_goes_on_where_it_was_and_replays(tmp_path):
    made, out = tmp_path / "cases.jsonl", tmp_path / "out.jsonl"
    python("-m", "tools.fuzz", "--generate", "--cases", 3, "--seed", 5, "--out", made)
    lines = [json.loads(line) for line in made.read_text().splitlines()]
    assert [line["number"] for line in lines] == [0, 1, 2]
    lines[0]["case"], lines[1]["case"] = json.loads(ADD.to_json()), json.loads(ENDS.to_json())
    made.write_text("".join(f"{json.dumps(line)}\n" for line in lines[:2]))
    first = python("-m", "tools.fuzz", "--replay", made, "--out", out, "--scripts", tmp_path / "scripts")
    assert first.returncode == 1
    assert "case 1: died in run: the process ended with 3" in first.stdout
    assert [json.loads(line)["ours"]["verdict"] for line in out.read_text().splitlines()] == ["right", "died"]
    (script,) = (tmp_path / "scripts").glob("*.py")
    assert "os._exit(3)" in script.read_text()
    again = python("-m", "tools.fuzz", "--replay", made, "--out", out)
    assert (again.returncode, len(out.read_text().splitlines())) == (0, 2)


@pytest.mark.filterwarnings("ignore")
def test_the_script_runs_the_case(tmp_path):
    case = Case(one_line("x0 + 1"), (Input((1, 3)),), Config("INT+FP"))
    path = tmp_path / "test_case.py"
    path.write_text(script_of(case, Outcome("died", "lower", 'an "error"\\'), "seed 1, case 2"))
    script = runpy.run_path(str(path))
    assert script["CASE"] == case
    assert script["__doc__"] == "seed 1, case 2: died in lower: an 'error'/"
    script["test_it_is_right"]()
