"""Runs command lines that come as JSON on stdin, one a line, and answers each with a line on stdout.

Each runs in a fork of this process, which has loaded torch and ExecuTorch once: it finds no state of an earlier one, it
may die, and the kernel says how much memory it took.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from typing import Any, BinaryIO, NoReturn

from safe_arm.core.processes import run_python
from safe_arm.core.stdio import flush_everything

#: The longest a job may take where it cannot be forked.
SECONDS = 24 * 3600.0


def serve() -> None:
    """Answer until stdin ends."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what a library prints is no answer
        from safe_arm.cli import pipeline  # noqa: F401

        for line in iter(sys.stdin.buffer.readline, b""):
            request = json.loads(line)
            began = time.monotonic()
            if sys.platform.startswith("linux"):
                answer = _forked(
                    request["arguments"], request["folder"], answers.fileno()
                )
            else:
                answer = _started(request["arguments"], request["folder"])
            answer["seconds"] = round(time.monotonic() - began, 1)
            answers.write(f"{json.dumps(answer)}\n".encode())
            answers.flush()


def _forked(arguments: list[str], folder: str, answers: int) -> dict[str, Any]:
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        flush_everything()
        child = os.fork()
        if child == 0:
            os.close(answers)  # so that this process's death is seen at once
            _become(arguments, folder, stdout, stderr)
        _, status, usage = os.wait4(child, 0)
        ended = os.waitstatus_to_exitcode(status)
        return {
            "status": ended,
            "stdout": _content(stdout),
            "stderr": _content(stderr),
            "memory": usage.ru_maxrss * 1024,
        }


def _become(
    arguments: list[str], folder: str, stdout: BinaryIO, stderr: BinaryIO
) -> NoReturn:
    """Run a command line in this process, and end with its status."""
    status: object = 1
    try:
        os.setpgid(0, 0)
        os.dup2(stdout.fileno(), 1)
        os.dup2(stderr.fileno(), 2)
        threading.Thread(
            target=_end_with_the_pipe, args=(os.dup(0),), daemon=True
        ).start()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.chdir(folder)
        from safe_arm.cli.main import cli

        cli(arguments, prog_name="safe-arm")
        status = 0
    except SystemExit as end:
        status = end.code
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        flush_everything()
        os._exit(status if isinstance(status, int) else 1)


def _end_with_the_pipe(pipe: int) -> None:
    """End this process and those it started once nobody waits for it any more: the pipe's other end is closed."""
    while os.read(pipe, 1):
        pass
    os.killpg(0, 9)


def _started(arguments: list[str], folder: str) -> dict[str, Any]:
    """Run a command line in a new interpreter, where a fork of this one is not safe."""
    script = (
        f"import os; os.chdir({folder!r}); from safe_arm.cli.main import main; main()"
    )
    ended = run_python("-c", script, *arguments, seconds=SECONDS)
    return {
        "status": ended.status,
        "stdout": ended.stdout,
        "stderr": ended.stderr,
        "memory": 0,
    }


def _content(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


if __name__ == "__main__":
    serve()
