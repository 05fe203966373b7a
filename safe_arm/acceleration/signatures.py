"""A graph signature's tables of parameters and buffers, built once and not once a lookup.

``ExportGraphSignature.inputs_to_buffers`` and its like build a table of all inputs whenever one is looked up, which
passes do several times for every node.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch.export.graph_signature import ExportGraphSignature

_tables: ContextVar[dict[tuple[int, str], Any] | None] = ContextVar("safe_arm_signatures", default=None)

_CACHED = ("inputs_to_parameters", "inputs_to_buffers", "inputs_to_lifted_tensor_constants")


@contextmanager
def cached() -> Iterator[None]:
    """Keep the tables of signatures until an input changes, in this thread, while the block runs."""
    token = _tables.set({})
    try:
        yield
    finally:
        _tables.reset(token)


def install() -> Callable[[], None]:
    """Let signatures ask whether their tables are ``cached``.

    Returns:
        What puts the stock properties back.
    """
    stock = {name: ExportGraphSignature.__dict__[name] for name in _CACHED}
    for name, built in stock.items():
        setattr(ExportGraphSignature, name, property(_lookup(name, built.fget)))

    def uninstall() -> None:
        for name, built in stock.items():
            setattr(ExportGraphSignature, name, built)

    return uninstall


def _lookup(name: str, build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def table(self: Any) -> Any:
        tables = _tables.get()
        if tables is None:
            return build(self)
        specs, names = list(self.input_specs), [spec.arg.name for spec in self.input_specs]
        known = tables.get((id(self), name))
        # The signature and its specs are kept: they are told by identity.
        if known is None or known[1] != names or not all(map(operator.is_, known[2], specs)):
            known = tables[id(self), name] = (self, names, specs, build(self))
        return known[3]

    return table
