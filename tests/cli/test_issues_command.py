"""``safe-arm issues``: the list, one entry, what a release has, the page of the docs."""

import json
import re
from functools import partial

import known_issues_page
import pytest
from command_line import invoke, refused
from interpreter import ROOT, python
from packaging.requirements import Requirement
from packaging.version import Version

from safe_arm.known_issues import KnownIssue, known_issues, release_of

run = partial(invoke, "issues")


def issue(first: str, last: str = "", fixed_in: str = "") -> KnownIssue:
    return KnownIssue("X", "", "", (first, last), fixed_in, "", "", "")


@pytest.mark.parametrize(
    ("entry", "release", "bites"),
    [
        pytest.param(issue("1.3.0"), "1.2.9", False, id="before the first"),
        pytest.param(issue("1.3.0"), "1.3.0", True, id="the first"),
        pytest.param(issue("1.3.0"), "1.3", True, id="the first, cut short"),
        pytest.param(issue("1.3.0"), "1.10.0", True, id="ten is after three"),
        pytest.param(issue("1.10.0"), "1.9.0", False, id="nine is before ten"),
        pytest.param(issue("1.3.0"), "1.3.0.dev20260301", True, id="a nightly is its release"),
        pytest.param(issue("1.3.0"), "1.3.0+cpu", True, id="a local build is its release"),
        pytest.param(issue("1.2.0", "1.4.1"), "1.4.1", True, id="the last"),
        pytest.param(issue("1.2.0", "1.4.1"), "1.4.2", False, id="after the last"),
        pytest.param(issue("1.2.0", "1.4.1", "1.5.1"), "1.5.0", True, id="between the last seen and the fix"),
        pytest.param(issue("1.2.0", "1.4.1", "1.5.0"), "1.5.0", False, id="the fix"),
        pytest.param(issue("1.2.0", "1.4.1", "1.5.0"), "1.5.1+cpu", False, id="after the fix"),
    ],
)
def test_what_a_release_has(entry, release, bites):
    assert entry.bites(release_of(release)) is bites


def test_the_data_is_consistent():
    for each in known_issues():
        first, last = each.affects
        assert Version(first) <= Version(last or first)
        assert not each.fixed_in or Version(last) < Version(each.fixed_in), each.id
        assert not each.only_with or Requirement(each.only_with).specifier


def test_all_are_listed_one_a_line():
    result = run()
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [each.id for each in known_issues()]
    assert lines[-1].startswith(f"{len(known_issues())} known issues; safe-arm issues ID")


def test_those_of_a_release():
    result = run("--affecting", "1.4.1")
    ids = [line.split()[0] for line in result.stdout.splitlines()[:-1]]
    assert {"S1", "21629"} <= set(ids)
    assert not {"18971", "D1", "S2"} & set(ids)
    assert f"{len(ids)} of {len(known_issues())} known issues affect ExecuTorch 1.4.1" in result.stdout
    listed = run("--affecting", "1.4.1", "--json")
    assert [entry["id"] for entry in json.loads(listed.stdout)] == ids


def test_a_release_that_nobody_has_tried_is_said_to_be_one():
    assert "affect ExecuTorch 9.9, if none is fixed since 1.5.1, the newest" in run("--affecting", "9.9").stdout
    assert "if none is fixed" not in run("--affecting", "1.5.1").stdout


def test_one_in_full():
    (s1,) = (each for each in known_issues() if each.id == "S1")
    result = run("S1")
    for text in (s1.title, s1.symptom, s1.we_do, s1.repro, s1.upstream, "1.2.0 and later"):
        assert text in result.stdout
    assert json.loads(run("S1", "--json").stdout)[0]["title"] == s1.title
    assert "only with torchao<0.16" in run("18322").stdout


def test_what_is_ready_to_be_sent_upstream():
    page = (ROOT / "docs" / "upstream" / "02-hardtanh-with-default-bounds.md").read_text()
    result = run("--upstream", "H1")
    assert page.endswith(result.stdout)
    assert result.stdout.startswith("# Arm backend: ")
    assert "\n## Patch\n" in result.stdout


def test_one_that_a_release_has_not():
    assert run("18971", "--affecting", "1.5.1").stdout == "18971 does not affect ExecuTorch 1.5.1\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["s1"], "issue 's1' is not known; similar: S1, S17, S12, S18, S51, S41; ", id="case"),
        pytest.param(["C-int32-ned"], "similar: C-int32-neg, ", id="typo"),
        pytest.param(["qqq"], "issue 'qqq' is not known; safe-arm issues lists all", id="like none"),
        pytest.param([""], "issue '' is not known; safe-arm issues lists all", id="empty"),
        pytest.param(["--affecting", "one"], "version 'one' is not known; accepted: ", id="no version"),
        pytest.param(["--affecting", ""], "such as 1.4.1, 1.5 or 1.6.0.dev20261101", id="empty version"),
        pytest.param(["--upstream", "--json", "H1"], "exclude each other", id="a page in JSON"),
        pytest.param(["--upstream"], "--upstream needs the ID of an issue; there are pages about ", id="no id"),
        pytest.param(["--upstream", "18322"], "there is no page about 18322; there are pages about ", id="no page"),
    ],
)
def test_wrong_use(arguments, says):
    refused(run(*arguments, status=2), says)


def test_the_page_of_the_docs_is_current():
    written = known_issues_page.PAGE.read_text()
    assert written == known_issues_page.page(known_issues()), "python tools/known_issues_page.py --write"


@pytest.mark.parametrize("arguments", [[], ["S1"]], ids=["all", "one"])
def test_a_terminal_of_80_columns_gets_whole_words(arguments):
    spawned = ["-m", "safe_arm.cli", "issues", *arguments]
    code = f"import pty, sys; sys.exit(pty.spawn([sys.executable, *{spawned}]))"
    done = python("-c", code, COLUMNS="80", NO_COLOR="1", TERM="dumb")
    printed = re.sub(r"\x1b\[\d*m", "", done.stdout)
    assert max(len(line) for line in printed.splitlines()) <= 80
    assert len(printed.splitlines()) > len(run(*arguments).stdout.splitlines())
    assert printed.split() == run(*arguments).stdout.split()
