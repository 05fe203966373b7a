"""docs/extend.md adds a check and a correction, and its steps do: taken in a copy of the checkout, their tests pass."""

import json
import re
import shutil

import pytest
from doc_pages import blocks_of
from interpreter import ROOT, python

PAGE = (ROOT / "docs" / "extend.md").read_text()
STEPS = {name: text for name, _, text in (part.partition("\n") for part in PAGE.split("\n## ")[1:])}
KINDS = {"check": STEPS["A check"], "correction": STEPS["A correction"]}


def take_steps(text, checkout):
    """Add what a section of the page adds."""
    issues = checkout / "safe_arm" / "known_issues" / "issues.json"
    for block in blocks_of(text):
        if block.language == "json":
            issues.write_text(json.dumps([*json.loads(issues.read_text()), json.loads(block.text)]))
        elif block.language == "python":
            assert not (checkout / block.title).exists()
            (checkout / block.title).write_text(block.text)
        elif block.language == "diff":
            (listed,) = re.findall(r"^\*\*3\. List it\*\* in `([^`]+)`", text, re.MULTILINE)
            apply(block.text, checkout / listed)


def apply(diff, path):
    """Apply a diff that has lines and no line numbers."""
    for hunk in diff.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        before, after = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
        assert path.read_text().count(before) == 1, before
        path.write_text(path.read_text().replace(before, after))


@pytest.mark.docs
def test_the_tests_of_what_is_added_and_of_the_layout_pass(tmp_path):
    checkout = tmp_path / "copy"
    left_out = shutil.ignore_patterns(".git", "out", "docs", "benchmarks", "demo", "data", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, checkout, ignore=left_out)
    for text in KINDS.values():
        take_steps(text, checkout)
    added = [block.title for block in blocks_of(PAGE) if block.title.startswith("tests/")]
    assert len(added) == 2
    but = "not wheel and not page_of_the_modules"
    command = ("-m", "pytest", "-q", *added, "tests/passes/test_manager.py", "tests/test_layout.py", "-k", but)
    done = python(*command, cwd=checkout, PYTHONPATH=str(checkout))
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_four_steps(kind):
    assert re.findall(r"^\*\*(\d)\. ", KINDS[kind], re.MULTILINE) == ["1", "2", "3", "4"]
