"""Faults put into ExecuTorch's Arm backend while a block runs, for the stock flow and safe_arm's alike.

Every fault is tied to an operator or to every run of a pass, never to how often something was called before: a second
lowering meets it again.
"""

from __future__ import annotations

import builtins
import errno
import os
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import tosa_serializer
from executorch.backends.arm._passes import QuantizeClampArgumentsPass, RewriteConvPass
from executorch.backends.arm.operators import node_visitor
from executorch.backends.arm.operators.node_visitor import get_node_visitors
from executorch.backends.arm.tosa.specification import TosaSpecification
from spying import raising as raising
from torch.fx import Node

from safe_arm.core.island import op_name

Faulty = AbstractContextManager[Any]
PASS = RewriteConvPass
"""A pass that runs in every lowering, with a ``call`` of its own."""
OPERATOR_PASS = QuantizeClampArgumentsPass
"""The same, early enough to see the operators of the edge graph, with Q and DQ folded."""
ADDED = "the injected fault"


class InjectedError(RuntimeError):
    """What faults raise if not told otherwise."""

    def __init__(self) -> None:
        super().__init__(ADDED)


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute while the block runs; an inherited one is inherited again afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, value)
        yield


# Passes


def pass_raising(error: BaseException | type[BaseException] = InjectedError, pass_class: type = PASS) -> Faulty:
    """A pass that raises in every lowering: ``InjectedError``, ``MemoryError``, ``KeyboardInterrupt``, …"""
    return replaced(pass_class, "call", raising(error))


def pass_raising_at(k: int, pass_class: type = OPERATOR_PASS) -> Faulty:
    """A pass that raises at the k-th operator, counted from 0, of every graph it is given."""
    return _looking_first(pass_class, lambda index, node: index == k, _complain)


def pass_raising_for(op: str, pass_class: type = OPERATOR_PASS) -> Faulty:
    """A pass that raises at every operator of a name, such as ``aten::tanh``, and names the node as fx does."""
    return _looking_first(pass_class, lambda index, node: op_name(node) == op, _complain)


def pass_raising_blindly_for(op: str, pass_class: type = OPERATOR_PASS) -> Faulty:
    """A pass that refuses a graph with an operator in it, and says neither which nor why.

    There is no message and no cause, and the innermost frame holds neither a node nor the graph.
    """
    scope: dict[str, Any] = {}
    exec("def give_up(node):\n    del node\n    raise RuntimeError() from None", scope)
    return _looking_first(pass_class, lambda index, node: op_name(node) == op, scope["give_up"])


@contextmanager
def _looking_first(pass_class: type, wanted: Callable[[int, Node], bool], act: Callable[[Node], Any]) -> Iterator[None]:
    """Before a pass does its work, act on the first operator of the graph that is wanted."""
    call = pass_class.call

    def looking_call(self: Any, graph_module: Any) -> Any:
        operators = [node for node in graph_module.graph.nodes if node.op == "call_function"]
        found = next((node for index, node in enumerate(operators) if wanted(index, node)), None)
        del operators
        return call(self, graph_module) if found is None else act(found)

    with replaced(pass_class, "call", looking_call):
        yield


def _complain(node: Node) -> None:
    raise RuntimeError(f"{ADDED}\n\nWhile executing {node.format_node()}")


# Serializing


@contextmanager
def visitor_raising(target: str = "tosa.CONV2D.default") -> Iterator[None]:
    """The node visitor of one TOSA operator raises."""
    specs = TosaSpecification.all_versions_and_profiles()
    classes = {type(get_node_visitors(spec)[target]) for spec in specs if target in get_node_visitors(spec)}
    assert classes, f"no visitor for {target}"
    with pytest.MonkeyPatch.context() as patch:
        for visitor in classes:
            patch.setattr(visitor, "define_node", raising(InjectedError))
        yield


def operators_not_serialized() -> Faulty:
    """Every node visitor raises when it writes its operator."""
    return replaced(node_visitor.NodeVisitor, "_serialize_operator", raising(InjectedError))


def serializer_raising() -> Faulty:
    """The TOSA serializer raises when it is asked for the bytes."""
    return replaced(tosa_serializer.TosaSerializer, "serialize", raising(InjectedError))


# Converting

VERSION = '[ "$1" = --version ] && exec echo 0.11.0'


@contextmanager
def converter_script(body: str) -> Iterator[Path]:
    """A shell script of that body stands first on PATH as ``model-converter``; yield its directory."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "model-converter"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("MODEL_CONVERTER_PATH", raising=False)
            patch.setenv("PATH", folder, prepend=os.pathsep)
            yield Path(folder)


def converter_failing(message: str = ADDED, code: int = 1) -> Faulty:
    """A model-converter that tells its version, and of every graph says something on stderr and exits."""
    return converter_script(f"{VERSION}\necho '{message}' >&2\nexit {code}")


def converter_broken() -> Faulty:
    """A model-converter that cannot even tell its version."""
    return converter_script("echo 'GLIBC_2.38 not found' >&2\nexit 1")


@contextmanager
def converter_hanging(seconds: int = 3600) -> Iterator[Path]:
    """A model-converter that tells its version, and of no graph ever comes back.

    It is killed at the end of the block if nobody did that before.

    Yields the file that holds the process id of the last one started.
    """
    with converter_script(f'{VERSION}\necho $$ > "$(dirname "$0")/pid"\nexec sleep {seconds}') as folder:
        pid_file = folder / "pid"
        try:
            yield pid_file
        finally:
            if pid_file.exists() and _is_ours(pid := int(pid_file.read_text())):
                os.kill(pid, signal.SIGKILL)


def _is_ours(pid: int) -> bool:
    command = Path(f"/proc/{pid}/cmdline")
    return command.exists() and command.read_bytes().startswith(b"sleep\0")


@contextmanager
def converter_missing() -> Iterator[None]:
    """No model-converter anywhere: PATH is one empty directory, and so is what the interpreter lies in."""
    with converter_script("exit 1") as folder:
        (folder / "model-converter").unlink()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", str(folder))
            patch.setattr(sys, "executable", str(folder / "python"))
            yield


def vela_replaced(main: Callable[..., Any]) -> Faulty:
    """Vela's entry point is that function while the block runs."""
    from ethosu.vela import vela

    return replaced(vela, "main", main)


def vela_raising(error: BaseException | type[BaseException] = InjectedError) -> Any:
    """Vela raises; ``SystemExit(1)`` is what its argument parser does."""
    return vela_replaced(raising(error))


def vela_saying(message: str = "Error: operator 'aten_convolution_default' is not supported", code: int = 1) -> Any:
    """Vela prints something about one operator and returns without a result, as it does for its own errors."""

    def main(*args: Any, **kwargs: Any) -> int:
        print(message)
        print(message, file=sys.stderr)
        return code

    return vela_replaced(main)


def vela_hanging(seconds: float = 3600.0) -> Any:
    """Vela does not come back for that long; it hangs in Python, so a signal or another process can stop it."""

    def main(*args: Any, **kwargs: Any) -> int:
        time.sleep(seconds)
        return 1

    return vela_replaced(main)


# The machine


class _Full:
    """A file on a full disk."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, *args: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Full:
        return self

    def __exit__(self, *args: Any) -> None:
        self._file.close()


def disk_full() -> Faulty:
    """Writing to any file in the directory for temporary files fails with ENOSPC; opening them does not."""
    real, root = builtins.open, os.path.realpath(tempfile.gettempdir())

    def full_open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        opened = real(file, mode, *args, **kwargs)
        writing = set(mode) & set("wax+") and not isinstance(file, int)
        return _Full(opened) if writing and os.path.realpath(file).startswith(root + os.sep) else opened

    return replaced(builtins, "open", full_open)
