"""Run ``safe-arm`` and ``python`` in forks of one process that has loaded torch once; for pages of many commands.

``commands(folder)`` starts that process, writes both names into the folder and gives it back as an entry for PATH. What
each is called with goes over a socket, together with its standard streams, so that a shell sees no difference but that
nothing is imported anew, nor what libraries print when they are imported.
"""

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
#: What ``safe-arm`` and ``python`` are: they hand over their streams, and end as the fork did.
CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = json.dumps([os.path.basename(sys.argv[0]), sys.argv[1:], os.getcwd(), dict(os.environ)])
socket.send_fds(server, [b"x"], [0, 1, 2])
server.sendall(request.encode())
server.shutdown(socket.SHUT_WR)
status = int(server.recv(16) or b"1")
os.kill(os.getpid(), -status) if status < 0 else os._exit(status)
"""
SECONDS = 300.0


@contextmanager
def commands(folder: Path) -> Iterator[Path]:
    """Serve both commands from a folder until the block ends.

    Raises:
        RuntimeError: the process that is to load torch ended, or does not come up.
    """
    folder.mkdir(parents=True)
    address = folder / "socket"
    for name in ("safe-arm", "python", "python3"):
        (folder / name).write_text(CLIENT.format(python=sys.executable, address=str(address)))
        (folder / name).chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, __file__, str(address)], stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        began = time.monotonic()
        while not address.exists():
            if server.poll() is not None or time.monotonic() - began > SECONDS:
                raise RuntimeError(f"the process that loads torch for all commands ended with {server.poll()}")
            time.sleep(0.1)
        yield folder
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def serve(address: str) -> NoReturn:
    """Answer for ever, each request in a fork."""
    import safe_arm.cli.pipeline  # noqa: F401

    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{address}.new")
    listening.listen()
    os.rename(f"{address}.new", address)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who answer
    while True:
        client, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            _answer(client)
        client.close()


def _answer(client: socket.socket) -> NoReturn:
    _, streams, *_ = socket.recv_fds(client, 1, 3)
    request = b"".join(iter(lambda: client.recv(1 << 16), b""))
    name, arguments, folder, environment = json.loads(request)
    child = os.fork()
    if child == 0:
        client.close()
        for place, stream in enumerate(streams):
            os.dup2(stream, place)
            os.close(stream)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        _become(name, arguments)
    for stream in streams:
        os.close(stream)
    _, status = os.waitpid(child, 0)
    client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(name: str, arguments: list[str]) -> NoReturn:
    """Be the command in this process, and end with its status."""
    status: object = 1
    try:
        if name == "safe-arm":
            from safe_arm.cli.main import main

            sys.argv = [name, *arguments]
            main()
        else:
            _be_python(arguments)
        status = 0
    except SystemExit as end:
        status = end.code if end.code is not None else 0
        if isinstance(status, str):
            print(status, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)


def _be_python(arguments: list[str]) -> None:
    """Run ``SCRIPT``, ``-m MODULE`` or ``-c CODE``."""
    first, *rest = arguments
    if first == "-m":
        sys.argv, sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = arguments, str(Path(first).resolve().parent)
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    sys.path.insert(1, str(ROOT))
    serve(sys.argv[1])
