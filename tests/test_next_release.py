"""``make test-next`` ends in a summary that names what is in the way, whatever the new release does."""

import next_release
import pytest

XML = """<testsuites><testsuite>
<testcase classname="tests.a" name="one"/>
<testcase classname="tests.a" name="two"><failure message="no"/></testcase>
<testcase classname="tests.b" name="three"><error message="no"/></testcase>
<testcase classname="tests.b" name="four"><error message="no"/></testcase>
<testcase classname="tests.b" name="five"><skipped/></testcase>
</testsuite></testsuites>"""
#: Stands for the run of the tests: writes their results.
RUN = "import sys; open(sys.argv[-1].partition('=')[2], 'w').write({xml!r})"


def test_requirements_that_are_not_met_are_named(monkeypatch):
    lines = ["click>=1", "click<1", "no-such-package==2", "other==1; extra == 'more'"]
    monkeypatch.setattr(next_release, "requires", lambda package: lines)
    missing = next_release.missing_requirements()
    assert missing.startswith("click<1, here is ")
    assert missing.endswith("; no-such-package==2 is missing")
    monkeypatch.setattr(next_release, "requires", lambda package: None)
    assert next_release.missing_requirements() == "all there"


def test_failures_are_counted_by_file(tmp_path):
    results = tmp_path / "r.xml"
    assert "failed" in next_release.tested(results)
    results.write_text(XML)
    lines = [line.strip() for line in next_release.tested(results).splitlines()]
    assert lines == ["3 failed, 1 passed, 1 skipped", "2 failed in tests.b", "1 failed in tests.a"]


@pytest.fixture
def summary(monkeypatch, tmp_path, capsys):
    """The exit status and the summary, for what the surface says and the tests' results."""
    monkeypatch.setattr(next_release, "RESULTS", tmp_path / "r.xml")
    monkeypatch.setattr(next_release, "missing_requirements", lambda: "all there")

    def run(surface, xml):
        monkeypatch.setattr(next_release, "surface", lambda: surface)
        status = next_release.main(["-c", RUN.format(xml=xml)])
        return status, capsys.readouterr().out.rpartition("\nExecuTorch ")[2].splitlines()[1:-1]

    return run


def test_nothing_in_the_way(summary):
    good = "<testsuite><testcase classname='a' name='b'/></testsuite>"
    lines = ["  requirements  all there", "  surface       nothing moved", "  core tests    1 passed"]
    assert summary((0, "0 names differ"), good) == (0, lines)


def test_what_moved_and_what_fails_are_in_the_summary(summary):
    status, lines = summary((1, "2 names differ between 1.5 and 1.6\n  gone  a.b"), XML)
    assert status == 1
    assert lines[1] == "  surface       2 names differ between 1.5 and 1.6"
    assert lines[2] == "  core tests    3 failed, 1 passed, 1 skipped"


def test_a_release_on_which_nothing_can_be_imported_ends_with_the_error(summary):
    status, lines = summary((2, "Traceback\nImportError: no ArmPassManager"), XML)
    assert status == 1
    assert lines[1:] == [
        "  surface       ImportError: no ArmPassManager",
        "  core tests    not run, because safe_arm cannot be imported",
    ]
