"""Every fence of README and docs is one that runs, or says why not; and the tool that runs them sees what is wrong."""

import re
import sys

import doc_pages
import draw_domains
import pytest
from interpreter import ROOT

from safe_arm.passes.manager import CORRECTIONS

FIRST_HOUR = ROOT / "docs" / "first-hour.md"
#: Fences left out, by how. More of them need a better reason than that it is easier.
LEFT_OUT = {"not run": 9, "run by": 13}
PAGE = """
```bash
cd . && export WHO=you
```
<!-- files
open("made.txt", "w").write("hidden")
-->
```console
$ echo "hello $WHO" && cat made.txt
hello you
hidden
```
<!-- not run: it would take for ever -->
```bash
exit 7
```
```python title="mine.py"
answer = 41
```
<!-- python
import mine
-->
```python
print(mine.answer + 1)
```

```text
42
```
"""


@pytest.fixture
def followed(tmp_path):
    """Follow a page in a folder of its own."""

    def follow(page):
        # With the interpreter itself, in place of forks of one that has loaded torch.
        for name in ("bin", "folder"):
            (tmp_path / name).mkdir()
        (tmp_path / "bin" / "python").symlink_to(sys.executable)
        return doc_pages.follow(page, tmp_path / "folder", tmp_path / "bin")

    return follow


def test_a_page_that_is_right(followed):
    found = followed(PAGE)
    assert (found.wrong, found.page, found.run) == ([], PAGE, 3)


@pytest.mark.parametrize(
    ("right", "wrong"), [("hello you\n", "hello me\n"), ("hello you\nhidden\n", ""), ("42\n", "43\n"), ("42\n", "")]
)
def test_a_page_that_is_wrong_is_told_and_put_right(followed, right, wrong):
    page = PAGE.replace(right, wrong)
    found = followed(page)
    assert len(found.wrong) == 1
    assert found.page == PAGE


@pytest.mark.parametrize("wrong", ["```bash\nfalse\n```\n", "```python\n1 / 0\n```\n", "```console\n$ exit 3\n```\n"])
def test_what_fails_fails_the_page(followed, wrong):
    with pytest.raises(doc_pages.CommandError):
        followed(wrong)


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ("```\na\n```\n", "a fence of language ''"),
        ("```fish\na\n```\n", "a fence of language 'fish'"),
        ("```text\na\n```\n", "a text fence behind no Python"),
        ("1. one\n\n   ```bash\n   ls\n   ```\n", "indented"),
        ("<!-- run by: tests/test_nowhere.py -->\n```bash\nls\n```\n", "neither a file nor a make target"),
        ("<!-- run by: make nothing -->\n```bash\nls\n```\n", "neither a file nor a make target"),
    ],
)
def test_a_fence_that_nobody_runs_is_told(page, fault):
    (found,) = doc_pages.faults(page)
    assert fault in found


@pytest.mark.parametrize("page", doc_pages.pages(), ids=lambda page: page.name)
def test_the_fences_of_every_page_are_right(page):
    assert doc_pages.faults(page.read_text()) == []


def test_what_is_left_out_is_counted():
    blocks = [block for page in doc_pages.pages() for block in doc_pages.blocks_of(page.read_text())]
    assert {kind: sum(block.marker == kind for block in blocks) for kind in LEFT_OUT} == LEFT_OUT
    fences = sum(len(re.findall(r"^```\w", page.read_text(), re.MULTILINE)) for page in doc_pages.pages())
    assert sum(not block.hidden for block in blocks) == fences


@pytest.mark.parametrize("page", [*doc_pages.pages(), FIRST_HOUR], ids=lambda page: page.name)
def test_every_make_target_named_exists(page):
    makefile = "".join((ROOT / name).read_text() for name in ("Makefile", "tools/targets.mk"))
    for target in re.findall(r"[`\n]make ([a-z][\w.-]*)", page.read_text()):
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_every_link_leads_to_a_file(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_corrections_of_the_page_are_those_there_are():
    rows = doc_pages.cells((ROOT / "docs" / "corrections.md").read_text())
    known = dict.fromkeys((each.name, each.issue) for each in CORRECTIONS)
    assert [(name.strip("`"), issue) for name, issue, _ in rows] == list(known)


def test_the_drawing_is_current():
    assert draw_domains.PICTURE.read_text() == draw_domains.drawing(), "python tools/draw_domains.py --write"


def test_every_page_is_in_the_nav():
    nav = (ROOT / "docs" / ".nav.yml").read_text()
    named = {*re.findall(r"(?:- |glob: )([\w/-]+\.md)$", nav, re.MULTILINE)}
    files = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert '"upstream/*.md"' in nav
    assert {name for name in files if not name.startswith("upstream/")} - named == set()


def test_every_page_has_its_day():
    assert [sum(doc_pages.is_due(number + day, 3) for day in range(3)) for number in range(5)] == [1] * 5
