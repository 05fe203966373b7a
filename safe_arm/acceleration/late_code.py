"""Generate the Python code of a graph module when it is first read, not after every pass.

``GraphModule.recompile`` writes the graph out as source and compiles it. Passes work on the graph itself, and most
modules between two passes are never called.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch.fx import GraphModule
from torch.fx.graph import _PyTreeCodeGen

from safe_arm.acceleration.shortcuts import shortcuts, taking

#: Attributes that ``recompile`` sets on a module and its class.
_GENERATED = ("_code", "_lineno_map", "_prologue_start", "forward")


def late() -> AbstractContextManager[None]:
    """Let ``recompile`` wait until a module is called or its code is read, in this thread, while the block runs."""
    return taking(late_code=True)


def generated_once(rewrite: Callable[..., GraphModule], *arguments: Any) -> GraphModule:
    """Return the graph module that a function makes of its arguments; its code is generated once, at the end."""
    with late():
        graph_module = rewrite(*arguments)
    graph_module.recompile()
    return graph_module


def recompiling_late(
    stock: Callable[[GraphModule], Any],
) -> Callable[[GraphModule], Any]:
    """Wrap ``recompile``: in the block of ``late`` the code is written once somebody reads it."""

    def recompile(self: GraphModule) -> Any:
        if not shortcuts().late_code:
            return stock(self)
        if isinstance(self._graph._codegen, _PyTreeCodeGen):
            self._in_spec = self._graph._codegen.pytree_info.in_spec
            self._out_spec = self._graph._codegen.pytree_info.out_spec
        for name in _GENERATED:
            self.__dict__.pop(name, None)
            # Every graph module has a class of its own.
            setattr(type(self), name, _Later(name, self, stock))
        for child in self.children():
            if isinstance(child, GraphModule):
                child.recompile()
        return None

    return recompile


class _Later:
    """A stand-in for generated code; when it is read, the code is generated and replaces it."""

    def __init__(
        self, name: str, module: GraphModule, recompile: Callable[[Any], Any]
    ) -> None:
        self._name = name
        self._module = weakref.ref(module)
        self._recompile = recompile

    def __get__(self, module: GraphModule | None, owner: type) -> Any:
        self._recompile(self._module())
        return getattr(owner if module is None else module, self._name)
