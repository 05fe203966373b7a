"""The last stage, Vela and model-converter, kept on a leash while one of our delegates is compiled.

Vela runs inside ExecuTorch's process, where nothing can stop it: there it runs in a child process, which can be ended
and cannot take the export with it. Both tools get a time limit, and a failure carries the tool's own words and a
command that repeats it.
"""

from __future__ import annotations

import csv
import multiprocessing
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from executorch.backends.arm import arm_vela
from executorch.backends.arm.vgf import backend as vgf_backend

from safe_arm.core.errors import SafeArmError

#: How ExecuTorch's messages begin when a tool is missing.
NOT_INSTALLED = (
    "Unable to locate a model converter",
    "Resolved converter candidate",
    "ethos-u-vela pip package couldn't be imported",
)

#: How the directories begin in which a failing tool's input is kept.
KEPT = "safe_arm-"

_said: ContextVar[list[str] | None] = ContextVar("safe_arm_tools_said", default=None)
_time_limit: ContextVar[float | None] = ContextVar("safe_arm_tool_time_limit", default=None)
_estimates: ContextVar[list[float] | None] = ContextVar("safe_arm_estimates", default=None)


class ToolError(SafeArmError):
    """An external tool rejected a delegate, crashed or did not finish.

    Attributes:
        tool: its name.
        command: a shell command that repeats the failure; empty if its input could not be kept.
    """

    def __init__(self, tool: str, message: str, command: str = "") -> None:
        super().__init__(message)
        self.tool = tool
        self.command = command


@contextmanager
def leashed(seconds: float, said: list[str]) -> Iterator[list[float]]:
    """Limit each run of an external tool, in this thread, while the block runs.

    Args:
        seconds: that one run may take.
        said: gets what Vela prints instead of stdout.

    Yields:
        The cycles that each run of Vela estimates its graph to take; of other tools, nothing.
    """
    estimates: list[float] = []
    tokens = _time_limit.set(seconds), _said.set(said), _estimates.set(estimates)
    try:
        yield estimates
    finally:
        _time_limit.reset(tokens[0])
        _said.reset(tokens[1])
        _estimates.reset(tokens[2])


def install() -> list[Callable[[], None]]:
    """Put the leash on; without ``leashed`` the tools run as ever.

    Returns:
        What takes it off again.
    """
    return [*_wrap_vela(), _wrap_converter()]


def _wrap_vela() -> list[Callable[[], None]]:
    if not arm_vela.has_vela:
        return []
    stock = arm_vela.vela

    class Vela:
        """The vela module, whose ``main`` runs in a child process while leashed."""

        def __getattr__(self, name: str) -> Any:
            return getattr(stock, name)

        def main(self, argv: list[str]) -> Any:
            limit = _time_limit.get()
            return stock.main(argv) if limit is None else _run_vela(stock.main, argv, limit)

    arm_vela.vela = Vela()
    return [lambda: setattr(arm_vela, "vela", stock)]


def _run_vela(main: Callable[[list[str]], Any], argv: list[str], limit: float) -> int:
    if not sys.platform.startswith("linux"):  # Nowhere else is forking a process with threads in it safe.
        return _checked_vela(int(main(argv) or 0), argv, "")
    with tempfile.TemporaryFile() as output:
        child = multiprocessing.get_context("fork").Process(target=_vela_in_child, args=(main, argv, output.fileno()))
        child.start()
        child.join(limit)
        if child.exitcode is None:
            child.kill()
            child.join()
            raise ToolError("Vela", f"Vela did not finish within {limit:g} s", _vela_command(argv))
        output.seek(0)
        said = output.read().decode(errors="replace")
        status = _checked_vela(child.exitcode, argv, said)
        if (heard := _said.get()) is not None:
            heard.append(said)
        return status


def _vela_in_child(main: Callable[[list[str]], Any], argv: list[str], output: int) -> None:
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1, closefd=False) for stream in (1, 2))
    sys.exit(main(argv))


def _checked_vela(status: int, argv: list[str], output: str) -> int:
    directory = next((a.removeprefix("--output-dir=") for a in argv if a.startswith("--output-dir=")), "")
    if status == 0 and Path(directory, "out_vela.npz").exists():
        if (estimates := _estimates.get()) is not None:
            estimates.extend(_cycles(Path(directory)))
        return status
    ended = f"was ended by signal {-status}" if status < 0 else f"exits {status}"
    last = [line for line in output.splitlines() if line.strip() and not line.startswith("Warning:")][-6:]
    raise ToolError("Vela", f"Vela {ended}: {' '.join(last) or 'and says nothing'}", _vela_command(argv))


def _cycles(directory: Path) -> Iterator[float]:
    """Yield what the summary says that Vela leaves beside its output; a summary it did not write says nothing."""
    for summary in directory.glob("*_summary_*.csv"):
        with open(summary, newline="") as file:
            yield from (float(row["cycles_total"]) for row in csv.DictReader(file) if row.get("cycles_total"))


def _vela_command(argv: list[str]) -> str:
    network = next((arg for arg in argv if arg.endswith(".tosa")), "")
    options = [arg for arg in argv if arg != network and not arg.startswith("--output-dir=") and arg]
    kept = _kept(network)
    return shlex.join(["vela", *options, kept]) if kept else ""


def _wrap_converter() -> Callable[[], None]:
    stock = vgf_backend.subprocess

    def run(command: list[str], **options: Any) -> Any:
        limit = _time_limit.get()
        return stock.run(command, **options) if limit is None else _run_converter(stock.run, command, options, limit)

    vgf_backend.subprocess = SimpleNamespace(**{**vars(stock), "run": run})
    return lambda: setattr(vgf_backend, "subprocess", stock)


def _run_converter(run: Callable[..., Any], command: list[str], options: dict[str, Any], limit: float) -> Any:
    try:
        return run(command, **options, timeout=limit)
    except subprocess.TimeoutExpired:
        message = f"model-converter did not finish within {limit:g} s"
    except subprocess.CalledProcessError as error:
        output = b" ".join(text for text in (error.stderr, error.stdout) if text).decode(errors="replace")
        message = f"model-converter exits {error.returncode}: {' '.join(output.split()) or 'and says nothing'}"
    raise ToolError("model-converter", message, _converter_command(command))


def _converter_command(command: list[str]) -> str:
    given = command[command.index("-i") + 1]
    kept = _kept(given)
    renamed = {given: kept, command[command.index("-o") + 1]: f"{kept}.vgf"}
    return shlex.join([renamed.get(word, word) for word in command]) if kept else ""


def _kept(path: str) -> str:
    """Copy a tool's input to where it survives the run; empty if that is not possible."""
    try:
        directory = tempfile.mkdtemp(prefix=KEPT)
        return shutil.copy(path, directory)
    except OSError:
        return ""
