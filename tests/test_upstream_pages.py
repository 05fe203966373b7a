"""The pages for upstream are whole, and the script that tries them sees what is wrong with one."""

import ast
import re
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp

import pytest
import upstream_pages
from interpreter import ROOT

from safe_arm.known_issues import known_issues

RELEASE = version("executorch")
PAGES = sorted((ROOT / "docs" / "upstream").glob("[0-9]*.md"))

HEAD = """---
issue: S1
versions: ['{release}']
files: [sums/core.py]
tests: [sums/tests.py]
correction: safe_arm/passes/sums.py
---
"""
BODY = """# A sum is one too many
## What happens
It is.
## Repro
```python
{repro}
```
## Cause
`sums/core.py:2`
## Patch
```diff
--- a/sums/core.py
+++ b/sums/core.py
@@ -1,2 +1,2 @@
 def total(a, b):
-    return a + b + 1
+    return {mended}
```
## Test
```python
from sums.core import total


def test_total():
    assert total(1, 2) == 3
```
"""
REPRO = "from sums.core import total\nassert total(0, 0) == 0"
CORE = "def total(a, b):\n    return a + b + 1\n"
#: What upstream tests, and a change could break.
TESTS = "from sums.core import total\n\n\ndef test_large():\n    assert total(200, 1) > 200\n"


@pytest.fixture
def tried(tmp_path, monkeypatch, capfd):
    """Try a page about an invented package; return the exit status and what was printed."""
    installed = tmp_path / "installed"
    (installed / "sums" / "more").mkdir(parents=True)
    for name, text in (("core.py", CORE), ("tests.py", TESTS), ("__init__.py", ""), ("more/other.py", "")):
        (installed / "sums" / name).write_text(text)
    monkeypatch.syspath_prepend(installed)
    monkeypatch.setattr(upstream_pages, "packages", lambda: installed)
    monkeypatch.setattr(upstream_pages, "SHARED", (("sums", ()),))

    def run(repro=REPRO, mended="a + b", release=RELEASE, whole=True):
        path = tmp_path / "01-sums.md"
        path.write_text(HEAD.format(release=release) + BODY.format(repro=repro, mended=mended))
        status = upstream_pages.tried([path], Path(mkdtemp(dir=tmp_path, prefix="tries")), whole)
        return status, capfd.readouterr().out

    return run


def test_a_page_that_is_right(tried, tmp_path):
    status, printed = tried()
    assert status == 0, printed
    assert "fails as installed (AssertionError)" in printed
    assert "test fails as installed; 1 upstream tests pass; 0 are lost" in printed
    assert (tmp_path / "installed" / "sums" / "core.py").read_text() == CORE
    (patched,) = tmp_path.glob("tries*/01-sums/overlay/sums")
    assert "a + b\n" in (patched / "core.py").read_text()
    assert (patched / "more").is_symlink()


FIXED = (
    "so the bug is fixed there: set fixed_in of S1 in safe_arm/known_issues/issues.json, drop "
    "safe_arm/passes/sums.py with its tests for releases that have the fix, and remove this page"
)
WRONG = {
    "fixed upstream": ({"repro": "import sums.core"}, FIXED),
    "in a later release": ({"repro": "import sums.core", "release": "0.1"}, "this page, which is done"),
    "a patch that fixes nothing": ({"mended": "a + b + 2"}, "fails with the patch: AssertionError"),
    "a patch that breaks a test": ({"mended": "a + b - (a > 99)"}, "tests that fail with the patch: "),
    "the test fails": ({"mended": "a + b if a != 1 else 0"}, "its test fails with the patch: "),
}


@pytest.mark.parametrize(("page", "complaint"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told(tried, page, complaint):
    status, printed = tried(**page)
    assert status == 1
    assert re.search(f"WRONG: .*{re.escape(complaint)}", printed), printed


def test_repros_alone(tried):
    status, printed = tried(whole=False)
    assert status == 0, printed
    assert "01-sums (S1): repro passes with the patch; fails as installed (AssertionError)\n" in printed
    status, printed = tried(whole=False, mended="a + b + 2")
    assert status == 1
    assert "WRONG: fails with the patch: AssertionError" in printed


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param("correction: safe_arm/passes/sums.py\n", "", "its front matter has", id="a field missing"),
        pytest.param("## Cause", "## Reason", "its sections are What happens, Repro, Reason", id="a section renamed"),
        pytest.param("```diff", "```text", r"it has the fences \['text'\] where one of diff belongs", id="no diff"),
        pytest.param("+++ b/sums/core.py", "+++ b/sums/other.py", "its diff changes", id="another file"),
    ],
)
def test_a_page_that_is_not_whole(tmp_path, old, new, says):
    path = tmp_path / "01-sums.md"
    text = HEAD.format(release=RELEASE) + BODY.format(repro=REPRO, mended="a + b")
    path.write_text(text.replace(old, new))
    with pytest.raises(upstream_pages.PageError, match=says):
        upstream_pages.page_of(path)


def test_every_page_has_a_number_of_its_own():
    numbers = [path.name.partition("-")[0] for path in PAGES]
    assert len(set(numbers)) == len(numbers)
    assert all(re.fullmatch(r"\d\d-[a-z0-9-]+\.md", path.name) for path in PAGES)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_names_what_is_there(path):
    page = upstream_pages.page_of(path)
    assert {each.strip() for each in page.issue.split(",")} <= {each.id for each in known_issues()}
    assert not page.correction or (ROOT / page.correction).is_file()
    for text in (page.repro, page.test):
        ast.parse(text)
        assert "safe_arm" not in text
    if RELEASE in page.versions:
        installed = upstream_pages.packages()
        lines = re.findall(r"`((?:executorch|torchao|torch)/[\w/]+\.py):(\d+)`", path.read_text())
        assert lines, "the cause names no file and line"
        for file, line in lines:
            assert int(line) <= len((installed / file).read_text().splitlines()), (file, line)
        for test in page.tests:
            assert (installed / test.partition("::")[0]).is_file(), test
