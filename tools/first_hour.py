"""Follow docs/first-hour.md in an empty folder and compare what is printed with the page.

python tools/first_hour.py [--write] [PAGE]

The wheel, built from this checkout, and constraints/users.txt are put into the folder. Every line of a ``console``
fence that begins with ``$`` is run in one bash, stderr among stdout; the lines after it are what it prints. A python
fence with a title is a file of that name. What varies between machines (``VARIES``) is compared by its pattern alone.
A command that fails fails the page; with ``--write`` the page gets what was printed.
"""

import difflib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "first-hour.md"
#: What differs from machine to machine or from run to run, and what it is compared as.
VARIES = (
    (r"\b\d+(\.\d+)? s\b", "N s"),
    (r"\bpython 3\.\d+\.\d+", "python 3.N"),
    (r"\bglibc 2\.\d+", "glibc 2.N"),
    (r"(?<=\d)\+(cpu|cu\d+)\b", ""),  # a build of torch
)
SECONDS = 1200
#: pip compiles no bytecode (for pip, "no" is this option's yes): what is imported is compiled then, a tenth of it all.
PIP = {"PIP_QUIET": "2", "PIP_NO_COMPILE": "no"}
_END = "the command ended with status "


@dataclass(frozen=True)
class Step:
    """A command of the page with what it prints, or a file."""

    command: str = ""
    output: str = ""
    file: str = ""
    text: str = ""


def steps_of(page: str) -> list[Step]:
    """Return the files and commands of a page in their order."""
    found = []
    for kind, file, text in re.findall(
        r'^```(console|python title="([^"]+)")\n(.*?)^```$', page, re.DOTALL | re.MULTILINE
    ):
        if kind != "console":
            found.append(Step(file=file, text=text))
            continue
        for each in re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            found.append(Step(command=each[0], output=each[1]))
    return found


class Shell:
    """One bash, in which what a command changes holds for the next."""

    def __init__(self, folder: Path) -> None:
        kept = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "COLUMNS")
        }
        # pip's own lines are no part of the page; nor are proofs that are kept from other runs.
        own = {"SAFE_ARM_PROOF_CACHE": str(folder / ".proofs"), "PWD": str(folder)}
        self._bash = subprocess.Popen(
            ["bash", "--norc"], cwd=folder, env={**kept, **PIP, **own}, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, command: str) -> tuple[str, int]:
        """Return what a command prints and its exit status; -1 if it took too long or ended the shell."""
        assert self._bash.stdin
        assert self._bash.stdout
        self._bash.stdin.write(f"{{ {command}\n}} < /dev/null\nprintf '%s%s\\n' '{_END}' $?\n")
        self._bash.stdin.flush()
        clock = threading.Timer(SECONDS, self.end)
        clock.daemon = True
        clock.start()
        printed = ""
        for line in self._bash.stdout:
            before, end, status = line.partition(_END)
            printed += before
            if end:
                clock.cancel()
                return printed, int(status)
        clock.cancel()
        return printed, -1

    def end(self) -> None:
        """End the shell and what it started."""
        if self._bash.poll() is None:
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()


def follow(steps: list[Step], folder: Path) -> list[Step]:
    """Return the steps with what they print, run in a folder, up to the first that fails.

    Raises:
        SystemExit: a command failed.
    """
    # CI ends a run by its process group; the shell has one of its own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shell, done = Shell(folder), []
    try:
        for step in steps:
            if step.file:
                (folder / step.file).write_text(step.text)
                done.append(step)
                continue
            start = time.monotonic()
            printed, status = shell.run(step.command)
            print(f"{time.monotonic() - start:6.1f} s  $ {step.command}", flush=True)
            if status:
                sys.exit(f"exit status {status} of: {step.command}\n{printed}")
            done.append(replace(step, output="".join(f"{line.rstrip()}\n" for line in printed.splitlines())))
    finally:
        shell.end()
    return done


def differences(steps: list[Step], done: list[Step]) -> str:
    """Return where what was printed is not what the page says; empty if nowhere."""
    parts = []
    for said, was in zip(steps, done, strict=True):
        sides = (alike(said.output).splitlines(), alike(was.output).splitlines())
        if sides[0] != sides[1]:
            lines = difflib.unified_diff(*sides, "the page", "printed", lineterm="", n=1)
            parts.append("\n".join((f"$ {said.command}", *lines)))
    return "\n\n".join(parts)


def alike(text: str) -> str:
    """Return a text with what varies between machines replaced."""
    for pattern, name in VARIES:
        text = re.sub(pattern, name, text)
    return text


def rewritten(page: str, steps: list[Step], done: list[Step]) -> str:
    """Return the page with what was printed in it, where that differs in more than what varies."""
    place = 0
    for said, was in zip(steps, done, strict=True):
        if said.file:
            continue
        head = f"$ {said.command}\n"
        place = page.index(head, place) + len(head)
        if alike(said.output) != alike(was.output):
            page = page[:place] + was.output + page[place + len(said.output) :]
    return page


def followed(path: Path, folder: Path, *, write: bool = False) -> int:
    """Follow a page in a folder that has the wheel; return 0 if the page is right or was written."""
    page = path.read_text()
    steps = steps_of(page)
    shutil.copy(ROOT / "constraints" / "users.txt", folder)
    done = follow(steps, folder)
    if write:
        path.write_text(rewritten(page, steps, done))
    elif found := differences(steps, done):
        print(f"{found}\n\nIf the page is to say so: make first-hour-page")
        return 1
    return 0


def main(arguments: list[str]) -> int:
    """Follow the page; return 0 if it is right or was written."""
    path = next((Path(each) for each in arguments if not each.startswith("-")), PAGE)
    with tempfile.TemporaryDirectory(prefix="first-hour-") as name:
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", name, str(ROOT)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        return followed(path, Path(name), write="--write" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
