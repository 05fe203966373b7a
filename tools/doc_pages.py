"""Run every fenced command and every Python block of README and docs, and compare what they print.

python tools/doc_pages.py [--write] [--every N] [PAGE...]

Each page is followed in a folder of its own, which has what ``FILES`` makes: ``model.pt2``, ``samples.npz`` and
``net.py``.

========================  =============================================================================================
fence                     what is done with it
========================  =============================================================================================
``bash``                  each line is run and has to end with status 0
``console``               each line behind ``$`` likewise, and what it prints is compared, but for ``first_hour.VARIES``
``python title="FILE"``   is written to that file
``python``                those of a page are one script, which runs at the place of its last part
``text`` behind one       what that part prints; other ``text`` needs a marker
========================  =============================================================================================

``toml``, ``yaml``, ``json``, ``diff`` and ``mermaid`` are not run. An HTML comment ``<!-- python`` to ``-->`` is a part
of the script that readers do not see, ``<!-- files`` to ``-->`` Python that is run at its place. A marker before a
fence leaves it out: ``<!-- not run: REASON -->``, or ``<!-- run by: PLACE -->``, a test file or make target that runs
it. ``--write`` puts what is printed into the page. ``--every N`` runs the commands of one page in N, of others every
day, and reads all.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import first_hour
from preloaded import commands

#: Trained a little differently on another processor.
first_hour.VARIES += ((r"\b\d+\.\d dB to the float net", "N dB to the float net"),)
ROOT = Path(__file__).resolve().parents[1]
#: Pages, or folders of them, whose blocks something else runs.
ELSEWHERE = {
    "docs/first-hour.md": "make test-first-hour",
    "docs/upstream": "make upstream-pages",
    "docs/examples.md": "tests/test_examples.py",
    "docs/how-to/ultralytics.md": "tests/test_ultralytics_page.py",
}
RUN = ("bash", "console", "python")
SHOWN = ("text", "toml", "yaml", "json", "diff", "mermaid")
FILES = """
import numpy, torch
torch.manual_seed(0)
layers = torch.nn.Conv2d(4, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 2)
net = torch.nn.Sequential(*layers).eval()
torch.export.save(torch.export.export(net, (torch.rand(1, 4, 8, 8),)), "model.pt2")
numpy.savez("samples.npz", numpy.random.default_rng(0).standard_normal((4, 1, 4, 8, 8), dtype=numpy.float32))
open("net.py", "w").write('''import torch
ModelUnderTest = torch.nn.Conv2d(4, 4, 3).eval()
ModelInputs = (torch.randn(1, 4, 8, 8),)
''')
"""
_FENCE = re.compile(
    r"(?:^<!-- (?P<marker>not run|run by): (?P<why>[^\n]+?) -->\n+)?"
    r'^```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n'
    r"(?P<text>.*?)^```$|^<!-- (?P<hidden>python|files)\n(?P<code>.*?)^-->$",
    re.DOTALL | re.MULTILINE,
)
_COMMAND = {
    "bash": re.compile(r"^(?!#|$)((?:.*\\\n)*.*)\n()", re.MULTILINE),
    "console": re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE),
}
_PART = "end of part "
#: What reads and writes no file of the page, so that one run does for all pages.
ALIKE_EVERYWHERE = ("safe-arm doctor", "safe-arm issues")
_printed: dict[str, str] = {}


class CommandError(Exception):
    """A command of a page failed."""


@dataclass(frozen=True)
class Block:
    """One fence, or one hidden comment, of a page."""

    language: str
    text: str
    title: str = ""
    hidden: bool = False
    marker: str = ""
    why: str = ""


@dataclass
class Followed:
    """The result of following a page: the page with the printed output, the differences, and the number of commands."""

    page: str
    wrong: list[str] = field(default_factory=list)
    run: int = 0


def pages() -> list[Path]:
    """Return README and the pages of the docs, but those that something else runs."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if not any(page.is_relative_to(ROOT / place) for place in ELSEWHERE)]


def blocks_of(page: str) -> list[Block]:
    """Return the fences and hidden comments of a page, in their order."""
    found = []
    for each in _FENCE.finditer(page):
        if hidden := each["hidden"]:
            found.append(Block(hidden, each["code"], hidden=True))
        else:
            parts = (each[name] or "" for name in ("language", "text", "title"))
            found.append(Block(*parts, marker=each["marker"] or "", why=each["why"] or ""))
    return found


def cells(page: str) -> list[list[str]]:
    """Return the rows of a page's tables, but for their heads."""
    rows = re.findall(r"^\|(.+)\|$", re.sub(r"^\|.*\|\n\|[-:| ]+\|$", "", page, flags=re.MULTILINE), re.MULTILINE)
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)] for row in rows]


def faults(page: str) -> list[str]:
    """Return what is wrong with a page's fences: a language that is none, output of nothing, a marker of no place."""
    blocks = blocks_of(page)
    found = ["a fence that is indented is not run"] if re.search(r"^ +```", page, re.MULTILINE) else []
    for before, block in zip([None, *blocks], blocks, strict=False):
        first = block.text.partition("\n")[0]
        if not block.hidden and block.language not in RUN + SHOWN:
            found.append(f"a fence of language {block.language!r}, accepted: {', '.join(RUN + SHOWN)}: {first}")
        of_python = before is not None and before.language == "python" and not before.title
        if block.language == "text" and not block.marker and not of_python:
            found.append(f"a text fence behind no Python, and without a marker: {first}")
        if block.marker == "run by" and not _is_place(block.why):
            found.append(f"a marker names {block.why!r}, which is neither a file nor a make target")
    return found


def _is_place(name: str) -> bool:
    target = name.removeprefix("make ")
    if target != name:
        rules = "".join((ROOT / name).read_text() for name in ("Makefile", "tools/targets.mk"))
        return re.search(rf"^{re.escape(target)}:", rules, re.MULTILINE) is not None
    return (ROOT / name).is_file()


def follow(page: str, folder: Path, path: Path) -> Followed:
    """Run a page in a folder that has the files, with ``path`` before PATH.

    Raises:
        CommandError: a command failed.
    """
    followed = Followed(page)
    blocks = [block for block in blocks_of(page) if not block.marker]
    parts = [place for place, block in enumerate(blocks) if block.language == "python" and not block.title]
    shell = first_hour.Shell(folder)
    shell.run(f"export PATH={path}:$PATH PYTHONPATH={ROOT}")
    try:
        for place, block in enumerate(blocks):
            if block.title:
                (folder / block.title).write_text(block.text)
            elif block.language == "files":
                (folder / ".files.py").write_text(block.text)
                _run(shell, "python .files.py")
            elif block.language in _COMMAND:
                _follow_commands(shell, block, followed)
            elif parts and place == parts[-1]:
                _follow_script(shell, folder, blocks[: place + 2], followed)
    finally:
        shell.end()
    return followed


def _follow_commands(shell: first_hour.Shell, block: Block, followed: Followed) -> None:
    for command, output in _COMMAND[block.language].findall(block.text):
        printed = _run_once(command, shell) if command.startswith(ALIKE_EVERYWHERE) else _run(shell, command)
        followed.run += 1
        if block.language == "console":
            _compare(f"$ {command}\n", output, printed, followed)


def _follow_script(shell: first_hour.Shell, folder: Path, blocks: list[Block], followed: Followed) -> None:
    """Run the Python of a page as one script, and compare each part with the text behind it."""
    parts = [(n, block) for n, block in enumerate(blocks) if block.language == "python" and not block.title]
    code = "".join(f"{block.text}\nprint({_PART!r} '{n}', flush=True)\n" for n, block in parts)
    if "import torch" in code:  # what a page draws at random is the same in every run
        code = f"import torch\ntorch.manual_seed(0)\n{code}"
    (folder / ".script.py").write_text(code)
    printed = _run(shell, "python .script.py 2> .stderr || { cat .stderr; false; }")
    printed = printed.replace(".script.py:", "script.py:")  # what a report names is no hidden file
    for n, block in parts:
        output, _, printed = printed.partition(f"{_PART}{n}\n")
        followed.run += not block.hidden
        behind = blocks[n + 1] if n + 1 < len(blocks) else None
        if behind and behind.language == "text":
            _compare("```text\n", f"{behind.text}```", f"{output}```", followed)


def _run_once(command: str, shell: first_hour.Shell) -> str:
    if command not in _printed:
        _printed[command] = _run(shell, command)
    return _printed[command]


def _run(shell: first_hour.Shell, command: str) -> str:
    start = time.monotonic()
    printed, status = shell.run(command)
    print(f"{time.monotonic() - start:6.1f} s  $ {command}", flush=True)
    if status:
        raise CommandError(f"exit status {status} of: {command}\n{printed}")
    return "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


def _compare(head: str, output: str, printed: str, followed: Followed) -> None:
    """Note a difference between what the page says behind a head and what was printed, and put it right."""
    if first_hour.alike(output) == first_hour.alike(printed):
        return
    command = head.strip().removeprefix("$ ")
    steps = ([first_hour.Step(command=command, output=each)] for each in (output, printed))
    followed.wrong.append(first_hour.differences(*steps))
    followed.page = followed.page.replace(head + output, head + printed, 1)


def is_due(number: int, every: int) -> bool:
    """Tell whether today is a page's turn."""
    return (number + date.today().toordinal()) % every == 0


def main() -> int:
    """Follow the pages; return 0 if they are right or were written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("pages", type=Path, nargs="*")
    asked = parser.parse_args()
    named = [page.resolve() for page in asked.pages]
    wrong, run, left = [], 0, 0
    with tempfile.TemporaryDirectory(prefix="doc-pages-") as name:
        start = time.monotonic()
        files = Path(name) / "files"
        files.mkdir()
        with commands(Path(name) / "bin") as path:
            subprocess.run([path / "python", "-c", FILES], cwd=files, check=True)
            print(f"{time.monotonic() - start:6.1f} s  loading torch", flush=True)
            for number, page in enumerate(named or pages()):
                text = page.read_text()
                blocks = blocks_of(text)
                wrong += [f"{os.path.relpath(page, ROOT)}: {each}" for each in faults(text)]
                left += sum(bool(block.marker) for block in blocks)
                is_run = any(block.language in RUN and not block.marker for block in blocks)
                if not is_run or not is_due(number, asked.every):
                    continue
                print(os.path.relpath(page, ROOT))
                try:
                    followed = follow(text, shutil.copytree(files, Path(name) / f"{number}-{page.stem}"), path)
                except CommandError as error:
                    followed = Followed(text, [str(error)])
                run += followed.run
                if asked.write:
                    page.write_text(followed.page)
                else:
                    wrong += [f"{os.path.relpath(page, ROOT)}: {each}" for each in followed.wrong]
    print(f"{run} commands and Python blocks were run, {left} fences are left out by a marker")
    print("\n\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
