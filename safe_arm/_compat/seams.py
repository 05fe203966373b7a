"""Where safe_arm reaches into the Arm backend, and how it stays out of everybody else's way.

Three places are wrapped once, on first use: the backends' ``preprocess``, the name ``ArmPassManager`` in
``executorch.backends.arm._passes`` (the backend imports it afresh for each delegate) and
``CheckProperQuantization.is_node_supported``. Each wrapper asks a context variable and behaves exactly as stock
unless it is set. A context variable belongs to one thread of control, so a stock export and a safe one can run side
by side. ``uninstall`` puts everything back.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch.fx import Node

from safe_arm._compat.upstream import (
    ArmPassManager,
    CheckProperQuantization,
    CompileSpec,
    EthosUBackend,
    TOSABackend,
    VgfBackend,
)

#: Key of the compile spec that marks a delegate as ours; its value names the corrections to apply.
MARKER = "safe_arm"

_manager: ContextVar[type[ArmPassManager] | None] = ContextVar("safe_arm_manager", default=None)
_accepted: ContextVar[frozenset[Node]] = ContextVar("safe_arm_accepted", default=frozenset())
_lock = threading.Lock()
_undo: list[Callable[[], None]] = []


def marker(names: Sequence[str]) -> CompileSpec:
    """Return the compile spec that carries the names of the corrections to a delegate's lowering."""
    return CompileSpec(MARKER, ",".join(names).encode())


@contextmanager
def accepting(nodes: frozenset[Node]) -> Iterator[None]:
    """Let the INT profile's quantisation check accept these nodes, in this thread, while the block runs."""
    token = _accepted.set(nodes)
    try:
        yield
    finally:
        _accepted.reset(token)


def install(manager_of: Callable[[tuple[str, ...]], type[ArmPassManager]]) -> None:
    """Wrap the three seams; a second call does nothing.

    Args:
        manager_of: gives the pass manager class for the names of the corrections that a marker carries.
    """
    with _lock:
        if _undo:
            return
        for backend in (TOSABackend, VgfBackend, EthosUBackend):
            _wrap_preprocess(backend, manager_of)
        _wrap_manager_lookup()
        _wrap_quantization_check()


def uninstall() -> None:
    """Put every wrapped seam back as ExecuTorch made it."""
    with _lock:
        while _undo:
            _undo.pop()()


def _wrap_preprocess(backend: Any, manager_of: Callable[[tuple[str, ...]], type[ArmPassManager]]) -> None:
    stock = backend.__dict__["preprocess"]
    preprocess = stock.__func__

    @functools.wraps(preprocess)
    def wrapped(edge_program: Any, compile_specs: list[CompileSpec]) -> Any:
        ours = [spec for spec in compile_specs if spec.key == MARKER]
        if not ours:
            return preprocess(edge_program, compile_specs)
        names = tuple(bytes(ours[0].value).decode().split(","))
        token = _manager.set(manager_of(names))
        try:
            return preprocess(edge_program, [spec for spec in compile_specs if spec.key != MARKER])
        finally:
            _manager.reset(token)

    backend.preprocess = staticmethod(wrapped)
    _undo.append(lambda: setattr(backend, "preprocess", stock))


def _wrap_manager_lookup() -> None:
    package = sys.modules["executorch.backends.arm._passes"]
    stock_type = package.__class__

    class ArmPassesPackage(types.ModuleType):
        """The ``_passes`` package, whose ``ArmPassManager`` is ours while one of our delegates is lowered."""

        @property
        def ArmPassManager(self) -> type[ArmPassManager]:  # noqa: N802
            return _manager.get() or self.__dict__["ArmPassManager"]

        @ArmPassManager.setter
        def ArmPassManager(self, value: type[ArmPassManager]) -> None:  # noqa: N802
            self.__dict__["ArmPassManager"] = value

    package.__class__ = ArmPassesPackage
    _undo.append(lambda: setattr(package, "__class__", stock_type))


def _wrap_quantization_check() -> None:
    stock = CheckProperQuantization.is_node_supported

    @functools.wraps(stock)
    def is_node_supported(self: CheckProperQuantization, submodules: Any, node: Node) -> bool:
        return node in _accepted.get() or stock(self, submodules, node)

    CheckProperQuantization.is_node_supported = is_node_supported
    _undo.append(lambda: setattr(CheckProperQuantization, "is_node_supported", stock))
