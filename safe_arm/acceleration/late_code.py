"""Python code for a graph module when somebody asks for it, not after every pass.

``GraphModule.recompile`` writes the graph out as source and compiles it. Passes work on the graph; hardly any of the
modules between two passes is ever called.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch.fx import GraphModule
from torch.fx.graph import _PyTreeCodeGen

_late: ContextVar[bool] = ContextVar("safe_arm_late_code", default=False)

#: What ``recompile`` leaves on a module and its class.
_GENERATED = ("_code", "_lineno_map", "_prologue_start", "forward")
_STOCK = GraphModule.recompile


@contextmanager
def late() -> Iterator[None]:
    """Let ``recompile`` wait until a module is called or its code is read, in this thread, while the block runs."""
    token = _late.set(True)
    try:
        yield
    finally:
        _late.reset(token)


def install() -> Callable[[], None]:
    """Let ``GraphModule.recompile`` ask whether code may come ``late``.

    Returns:
        What puts the stock method back. Modules still without code make it when asked, also after that.
    """
    GraphModule.recompile = _recompile  # type: ignore[method-assign]

    def uninstall() -> None:
        GraphModule.recompile = _STOCK  # type: ignore[method-assign]

    return uninstall


def _recompile(self: Any) -> Any:
    if not _late.get():
        return _STOCK(self)
    if isinstance(self._graph._codegen, _PyTreeCodeGen):
        self._in_spec = self._graph._codegen.pytree_info.in_spec
        self._out_spec = self._graph._codegen.pytree_info.out_spec
    for name in _GENERATED:
        self.__dict__.pop(name, None)
        setattr(type(self), name, _Later(name, self))  # Every graph module has a class of its own.
    for child in self.children():
        if isinstance(child, GraphModule):
            child.recompile()
    return None


class _Later:
    """Stands for generated code until it is read; the code itself then takes its place."""

    def __init__(self, name: str, module: Any) -> None:
        self._name = name
        self._module = weakref.ref(module)

    def __get__(self, module: Any, owner: type) -> Any:
        _STOCK(self._module())
        return getattr(owner if module is None else module, self._name)
