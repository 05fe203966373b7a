"""Limit the time of the last stage, Vela and model-converter, while a safe_arm delegate is compiled.

Stock runs Vela inside ExecuTorch's process, where nothing can stop it. Here it runs in a child process, which can be
killed and cannot crash the export. A failure carries the tool's output and a command that repeats it.
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
#: Vela's option for the directory of its output.
_OUTPUT_DIR = "--output-dir="


def in_child(stock: ModuleType) -> SimpleNamespace:
    """Wrap Vela's module: our delegates are compiled in a child process, within the time limit."""

    def main(argv: list[str]) -> int | None:
        record = current_lowering()
        if record.manager is not None:
            argv = _with_spaces(argv)
        if record.time_limit is None:
            return stock.main(argv)
        return _run_vela(stock.main, argv, record.time_limit)

    return SimpleNamespace(**{**vars(stock), "main": main})


def _with_spaces(argv: list[str]) -> list[str]:
    """Join the arguments that ExecuTorch split at the spaces in the name of its temporary directory."""
    text = " ".join(argv)
    paths = re.search(r"(--output-dir=(.*)[/\\]output) (\2[/\\]out\.tosa)", text)
    if paths is None or " " not in paths[2]:
        return argv
    before = text[: paths.start()].split()
    after = text[paths.end() :].split()
    return [*before, paths[1], paths[3], *after]


def _run_vela(
    main: Callable[[list[str]], int | None], argv: list[str], limit: float
) -> int:
    if not sys.platform.startswith("linux"):
        # Forking a process that has threads is safe on Linux only.
        return _checked_vela(int(main(argv) or 0), argv, "")
    with tempfile.TemporaryFile() as output:
        arguments = main, argv, output.fileno()
        fork = multiprocessing.get_context("fork")
        child = fork.Process(target=_vela_in_child, args=arguments)
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
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    sys.exit(main(argv))


def _checked_vela(status: int, argv: list[str], output: str) -> int:
    directory = Path()
    for argument in argv:
        if argument.startswith(_OUTPUT_DIR):
            directory = Path(argument.removeprefix(_OUTPUT_DIR))
    if status == 0 and (directory / "out_vela.npz").exists():
        current_lowering().summaries.extend(_summaries(directory, output))
        return status
    end = f"was ended by signal {-status}" if status < 0 else f"exits {status}"
    lines = []
    for line in output.splitlines():
        if line.strip() and not line.startswith("Warning:"):
            lines.append(line)
    text = " ".join(lines[-6:]) or "and says nothing"
    raise _vela_error(f"Vela {end}: {text}", argv)


def _summaries(directory: Path, printed: str) -> Iterator[VelaSummary]:
    """Yield the rows of the summaries that Vela wrote beside its output, with the counts that it printed."""
    lines = re.findall(r"^(CPU|NPU) operators = (\d+)", printed, re.M)
    counts = {place: int(number) for place, number in lines}
    for summary in directory.glob("*_summary_*.csv"):
        with np.load(directory / "out_vela.npz") as data:
            scratch = int(data["scratch_shape"][0])
            sizes = scratch, data["cmd_data"].nbytes, data["weight_data"].nbytes
        with open(summary, newline="") as file:
            for row in csv.DictReader(file):
                figures = {name: _figure(value) for name, value in row.items()}
                yield VelaSummary(
                    "", figures, *sizes, counts.get("NPU"), counts.get("CPU")
                )


def _figure(text: str) -> float | str:
    """Parse a finite number; anything else stays text, since JSON has no number for it."""
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
    network, options = "", []
    for argument in argv:
        if argument.endswith(".tosa"):
            network = network or argument
        elif argument and not argument.startswith(_OUTPUT_DIR):
            options.append(argument)
    return _tool_error("Vela", message, ["vela", *options, network], network)


def leashed_subprocess(stock: ModuleType) -> SimpleNamespace:
    """Wrap ``subprocess`` as the VGF backend sees it: model-converter has a time limit in our delegates."""

    def run(command: list[str], **options: Any) -> Completed:
        limit = current_lowering().time_limit
        if limit is None:
            return stock.run(command, **options)
        try:
            return stock.run(command, **options, timeout=limit)
        except subprocess.TimeoutExpired:
            message = f"model-converter did not finish within {limit:g} s"
        except subprocess.CalledProcessError as error:
            output = b" ".join((error.stderr or b"", error.stdout or b""))
            words = output.decode(errors="replace").split()
            text = " ".join(words) or "and says nothing"
            message = f"model-converter exits {error.returncode}: {text}"
        network = command[command.index("-i") + 1]
        raise _tool_error("model-converter", message, command, network)

    return SimpleNamespace(**{**vars(stock), "run": run})


def _tool_error(
    tool: str,
    message: str,
    command: list[str],
    network: str,
) -> ToolError:
    """Return the error with the input in it, and the command as it runs in the input's directory."""
    try:
        data = Path(network).read_bytes()
    except OSError:
        return ToolError(tool, message)
    # Files that are named after the input, too.
    bare = [Path(word).name if word.startswith(network) else word for word in command]
    return ToolError(tool, message, shlex.join(bare), Path(network).name, data)


def beside_the_interpreter_too(
    stock: Callable[[], str | Path],
) -> Callable[[], str | Path]:
    """Wrap the search for model-converter: our delegates find the one beside the interpreter first."""

    def require() -> str | Path:
        record = current_lowering()
        if record.manager is None and record.time_limit is None:
            return stock()
        return find_converter() or stock()

    return require


#: The function that finds the converter.
REQUIRE_CONVERTER = "require_model_converter_executable"
if not hasattr(vgf_backend, REQUIRE_CONVERTER):
    REQUIRE_CONVERTER = "require_model_converter_binary"  # 1.2
