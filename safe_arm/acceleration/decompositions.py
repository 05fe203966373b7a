"""One decomposition of a program on its way to our partitioner, where ExecuTorch makes three.

``to_edge_transform_and_lower`` functionalises a program, decomposes what no partitioner wants whole, and decomposes
once more after asking the filters. Each is a full trace. The first two can be one; the third has nothing to do unless
a filter gave something up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

from torch.export import ExportedProgram
from torch.fx import GraphModule

from safe_arm.core.origins import is_fatal

_functional: ContextVar[WeakSet[Any] | None] = ContextVar("safe_arm_functional", default=None)


@contextmanager
def merged() -> Iterator[None]:
    """Put the functionalisation off until there is something to decompose, in this thread, while the block runs."""
    token = _functional.set(WeakSet())
    try:
        yield
    finally:
        _functional.reset(token)


def install() -> Callable[[], None]:
    """Let ``run_decompositions`` ask whether decompositions are ``merged``.

    Returns:
        What puts the stock method back.
    """
    stock = ExportedProgram.run_decompositions

    def run_decompositions(self: Any, decomp_table: Any = None, **kwargs: Any) -> Any:
        functional = _functional.get()
        if functional is None or decomp_table is None or kwargs:
            return stock(self, decomp_table, **kwargs)
        if self in functional:
            return stock(self, decomp_table) if _calls_any_of(self.graph_module, decomp_table) else self
        if not decomp_table:
            return self
        decomposed = _both(stock, self, decomp_table)
        functional.add(decomposed)
        return decomposed

    ExportedProgram.run_decompositions = run_decompositions  # type: ignore[assignment, method-assign]

    def uninstall() -> None:
        ExportedProgram.run_decompositions = stock  # type: ignore[method-assign]

    return uninstall


def _both(stock: Callable[..., Any], program: Any, table: Any) -> Any:
    try:
        return stock(program, table)
    except Exception as error:
        if is_fatal(error):
            raise
        return stock(stock(program, {}), table)


def _calls_any_of(graph_module: GraphModule, table: Any) -> bool:
    graphs = (module.graph for module in graph_module.modules() if isinstance(module, GraphModule))
    return any(node.op == "call_function" and node.target in table for graph in graphs for node in graph.nodes)
