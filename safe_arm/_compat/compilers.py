"""The last stage, Vela and model-converter, kept on a leash while one of our delegates is compiled.

Vela runs inside ExecuTorch's process, where nothing can stop it: there it runs in a child process, which can be ended
and cannot take the export with it. Both tools get a time limit, and a failure carries the tool's own words and a
command that repeats it.
"""

from __future__ import annotations

import csv
import math
import multiprocessing
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from executorch.backends.arm.vgf import backend as vgf_backend

from safe_arm.core.device_cost import VelaSummary
from safe_arm.core.errors import ToolError
from safe_arm.core.lowering_record import current_lowering
from safe_arm.core.toolchain import find_converter

Completed = subprocess.CompletedProcess[bytes]


def in_child(stock: ModuleType) -> SimpleNamespace:
    """Wrap Vela's module: our delegates are compiled in a child process, within the time limit."""

    def main(argv: list[str]) -> int | None:
        asked = current_lowering()
        if asked.manager is not None:
            argv = _with_spaces(argv)
        return (
            stock.main(argv)
            if asked.time_limit is None
            else _run_vela(stock.main, argv, asked.time_limit)
        )

    return SimpleNamespace(**{**vars(stock), "main": main})


def _with_spaces(argv: list[str]) -> list[str]:
    """Return arguments whole that ExecuTorch split at the spaces in the name of its temporary directory."""
    text = " ".join(argv)
    found = re.search(r"(--output-dir=(.*)[/\\]output) (\2[/\\]out\.tosa)", text)
    if found is None or " " not in found[2]:
        return argv
    before, after = text[: found.start()].split(), text[found.end() :].split()
    return [*before, found[1], found[3], *after]


def _run_vela(
    main: Callable[[list[str]], int | None], argv: list[str], limit: float
) -> int:
    if not sys.platform.startswith(
        "linux"
    ):  # Nowhere else is forking a process with threads in it safe.
        return _checked_vela(int(main(argv) or 0), argv, "")
    with tempfile.TemporaryFile() as output:
        child = multiprocessing.get_context("fork").Process(
            target=_vela_in_child, args=(main, argv, output.fileno())
        )
        child.start()
        child.join(limit)
        if child.exitcode is None:
            child.kill()
            child.join()
            raise _vela_error(f"Vela did not finish within {limit:g} s", argv)
        output.seek(0)
        text = output.read().decode(errors="replace")
        status = _checked_vela(child.exitcode, argv, text)
        current_lowering().printed.append(text)
        return status


def _vela_in_child(
    main: Callable[[list[str]], int | None], argv: list[str], output: int
) -> None:
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.stdout, sys.stderr = (
        os.fdopen(stream, "w", buffering=1, closefd=False) for stream in (1, 2)
    )
    sys.exit(main(argv))


def _checked_vela(status: int, argv: list[str], output: str) -> int:
    directory = next(
        (
            a.removeprefix("--output-dir=")
            for a in argv
            if a.startswith("--output-dir=")
        ),
        "",
    )
    if status == 0 and Path(directory, "out_vela.npz").exists():
        current_lowering().summaries.extend(_summary(Path(directory), output))
        return status
    ended = f"was ended by signal {-status}" if status < 0 else f"exits {status}"
    last = [
        line
        for line in output.splitlines()
        if line.strip() and not line.startswith("Warning:")
    ][-6:]
    raise _vela_error(f"Vela {ended}: {' '.join(last) or 'and says nothing'}", argv)


def _summary(directory: Path, printed: str) -> Iterator[VelaSummary]:
    """Yield what the summary says that Vela leaves beside its output; a summary it did not write says nothing."""
    counts = {
        where: int(number)
        for where, number in re.findall(r"^(CPU|NPU) operators = (\d+)", printed, re.M)
    }
    for summary in directory.glob("*_summary_*.csv"):
        with np.load(directory / "out_vela.npz") as data:
            sizes = (
                int(data["scratch_shape"][0]),
                data["cmd_data"].nbytes,
                data["weight_data"].nbytes,
            )
        with open(summary, newline="") as file:
            for row in csv.DictReader(file):
                figures = {name: _figure(value) for name, value in row.items()}
                yield VelaSummary(
                    "", figures, *sizes, counts.get("NPU"), counts.get("CPU")
                )


def _figure(text: str) -> float | str:
    """Return a number as one; what is none, and what JSON has no number for, stays text."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text


def _vela_error(message: str, argv: list[str]) -> ToolError:
    network = next((arg for arg in argv if arg.endswith(".tosa")), "")
    options = [
        arg
        for arg in argv
        if arg != network and not arg.startswith("--output-dir=") and arg
    ]
    return _tool_error("Vela", message, ["vela", *options, network], network)


def leashed_subprocess(stock: ModuleType) -> SimpleNamespace:
    """Wrap ``subprocess`` as the VGF backend sees it: model-converter has a time limit in our delegates."""

    def run(command: list[str], **options: Any) -> Completed:
        limit = current_lowering().time_limit
        return (
            stock.run(command, **options)
            if limit is None
            else _run_converter(stock.run, command, limit, **options)
        )

    return SimpleNamespace(**{**vars(stock), "run": run})


def _run_converter(
    run: Callable[..., Completed], command: list[str], limit: float, **options: Any
) -> Completed:
    try:
        return run(command, **options, timeout=limit)
    except subprocess.TimeoutExpired:
        message = f"model-converter did not finish within {limit:g} s"
    except subprocess.CalledProcessError as error:
        output = b" ".join(
            text for text in (error.stderr, error.stdout) if text
        ).decode(errors="replace")
        message = f"model-converter exits {error.returncode}: {' '.join(output.split()) or 'and says nothing'}"
    raise _tool_error(
        "model-converter", message, command, command[command.index("-i") + 1]
    )


def _tool_error(tool: str, message: str, command: list[str], given: str) -> ToolError:
    """Return the error with the input in it, and the command as it runs in the input's directory."""
    try:
        data = Path(given).read_bytes()
    except OSError:
        return ToolError(tool, message)
    bare = [Path(word).name if word.startswith(given) else word for word in command]
    return ToolError(tool, message, shlex.join(bare), Path(given).name, data)


def beside_the_interpreter_too(
    stock: Callable[[], str | Path],
) -> Callable[[], str | Path]:
    """Wrap the search for model-converter: our delegates find the one beside the interpreter first."""

    def require() -> str | Path:
        found = None if current_lowering().manager is None else find_converter()
        return stock() if found is None else found

    return require


#: The function that finds the converter.
REQUIRE_CONVERTER = "require_model_converter_executable"
if not hasattr(vgf_backend, REQUIRE_CONVERTER):
    REQUIRE_CONVERTER = "require_model_converter_binary"  # 1.2
