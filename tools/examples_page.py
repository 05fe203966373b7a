"""Run the examples as docs/examples.md shows them, and compare the page with the files and with what is printed.

python tools/examples_page.py [--write] [HEADING...]

A copy of examples/, with demo/ and tools/ beside it, is the folder. A python fence with a title is an example's text, a
diff fence with a title what that example changes in ExecuTorch's own script, a ``console`` fence commands with what
they print. An installed safe_arm is used if there is one, else this checkout. ``--write`` writes what is so.

The script of a worked path (``WORKED_PATHS``) is the Python of its page, in parts; ``--write`` joins them to the file
in examples/. tools/doc_pages.py runs these pages.
"""

import difflib
import re
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import first_hour

#: Trained a little differently on another processor.
first_hour.VARIES += ((r"\b\d+\.\d dB to the float net", "N dB to the float net"),)
ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "examples.md"
#: The scripts whose parts a how-to page explains one by one.
WORKED_PATHS = {
    "pretrained.py": ROOT / "docs" / "how-to" / "pretrained.md",
    "decoder.py": ROOT / "docs" / "how-to" / "decoder.md",
    "keyword_stream.py": ROOT / "docs" / "how-to" / "keyword-stream.md",
    "ultralytics_yolo.py": ROOT / "docs" / "how-to" / "ultralytics.md",
}
_FENCE = r'^```{kind} title="([^"]+)"\n(.*?)^```$'


def sections(page: str) -> dict[str, str]:
    """Return the parts of a page that have examples, by their headings."""
    parts = re.split(r"^## (.*)\n", page, flags=re.MULTILINE)[1:]
    return {title: text for title, text in zip(parts[::2], parts[1::2], strict=True) if "```console" in text}


def stock_twin(ours: str) -> str:
    """Return ExecuTorch's own script: in place of what an example has of ours, what its comments say stock has."""
    line, names, stock_names = re.search(r"^(from safe_arm import (.*?)  # stock: (.*))$", ours, re.MULTILINE).groups()
    stock = ours.replace(line, f"from executorch.backends.arm import {stock_names}")
    for name, stock_name in zip(names.split(", "), stock_names.split(", "), strict=True):
        stock = stock.replace(name, stock_name)
    return re.sub(r"^.*  # stock: no .*\n", "", stock, flags=re.MULTILINE)


def diff_to_stock(name: str) -> str:
    """Return what an example changes in ExecuTorch's own script, as a diff without file names."""
    ours = (ROOT / "examples" / name).read_text()
    lines = difflib.unified_diff(stock_twin(ours).splitlines(), re.sub("  # stock: .*", "", ours).splitlines(), n=0)
    return "".join(f"{line.rstrip()}\n" for line in lines if not line.startswith(("---", "+++", "@@")))


def with_files(page: str) -> str:
    """Return the page with the examples and their diffs as they are in examples/."""

    def example(found: re.Match[str]) -> str:
        return f'```python title="{found[1]}"\n{(ROOT / "examples" / found[1]).read_text()}```'

    def diff(found: re.Match[str]) -> str:
        return f'```diff title="{found[1]}"\n{diff_to_stock(found[1])}```'

    for kind, made in (("python", example), ("diff", diff)):
        page = re.sub(_FENCE.format(kind=kind), made, page, flags=re.DOTALL | re.MULTILINE)
    return page


def joined_script(page: str) -> str:
    """Return the Python fences of a worked path's page as one script."""
    parts = re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    return "\n\n".join(parts)


def run(text: str, folder: Path) -> tuple[list[first_hour.Step], list[first_hour.Step]]:
    """Return the commands of a section, with what the page says that they print and with what they do.

    Raises:
        SystemExit: a command failed.
    """
    for name in ("examples", "demo", "tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    steps = [step for step in first_hour.steps_of(text) if not step.file]
    installed = find_spec("safe_arm")
    source = Path(installed.origin).parents[1] if installed and installed.origin else ROOT
    own = Path(sys.executable).parent
    # ExecuTorch looks for the compilers on PATH; the command line need not be installed.
    setting = f'set -o pipefail; export OMP_NUM_THREADS=1 PATH="{own}:$PATH" PYTHONPATH="{source}"'
    command = 'safe-arm() { python -m safe_arm.cli "$@"; }'
    prepared = first_hour.Step(command=f"{setting}; {command}")
    return steps, first_hour.follow([prepared, *steps], folder / "examples")[1:]


def main(arguments: list[str]) -> int:
    """Run the sections that are named, or all; return 0 if the page is right or was written."""
    page = PAGE.read_text()
    wanted, write, wrong = [each for each in arguments if each != "--write"], "--write" in arguments, []
    if unknown := set(wanted) - set(sections(page)):
        sys.exit(f"no such heading: {', '.join(sorted(unknown))}; there are: {', '.join(sections(page))}")
    new = with_files(page)
    if not write:
        wrong += difflib.unified_diff(page.splitlines(), new.splitlines(), "the page", "examples/", lineterm="", n=1)
    for title, text in sections(new).items():
        if wanted and title not in wanted:
            continue
        with tempfile.TemporaryDirectory(prefix="examples-") as name:
            steps, done = run(text, Path(name))
        if write:
            new = new.replace(text, first_hour.rewritten(text, steps, done))
        elif found := first_hour.differences(steps, done):
            wrong.append(found)
    if write:
        PAGE.write_text(new)
        for name, path in WORKED_PATHS.items():
            (ROOT / "examples" / name).write_text(joined_script(path.read_text()))
    elif wrong:
        print("\n".join(wrong), "\nIf the page is to say so: make examples-page", sep="\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
