"""Programs of two revisions are compared byte by byte."""

import subprocess
import sys

import same_programs

RECORD = {"net": "a", "graph": "g", "delegates": ["one"], "verdicts": [], "error": ""}


def test_what_differs_is_named_and_the_status_is_1(capsys):
    assert same_programs.compare({"a": RECORD}, {"a": RECORD}) == 0
    assert capsys.readouterr().out == "1 nets, 1 delegates, 0 nets that raise: 0 differ\n"
    other = RECORD | {"delegates": ["one", "two"], "error": "ValueError: no"}
    assert same_programs.compare({"a": RECORD}, {"a": other}) == 1
    printed = "a: another delegates, error\n1 nets, 2 delegates, 1 nets that raise: 1 differ\n"
    assert capsys.readouterr().out == printed


def test_a_checkout_makes_the_programs_of_its_revision():
    few = ("HEAD", "--corpus", "1", "--cases", "0", "--nets")
    made = subprocess.run([sys.executable, same_programs.__file__, *few], capture_output=True, text=True)
    assert made.stdout == "1 nets, 1 delegates, 0 nets that raise: 0 differ\n"
    assert made.returncode == 0
