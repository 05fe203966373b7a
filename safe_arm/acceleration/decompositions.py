"""Decompose a program once on its way to SafeArmPartitioner, where ExecuTorch does so three times.

``to_edge_transform_and_lower`` functionalises a program, decomposes the operators that no partitioner wants whole, and
decomposes once more after asking the filters. Each of the three is a full trace. The first two can be one. The third
has nothing to do unless a filter gave something up. Each time torch also asks for the names of all operators, once for
each namespace, where once is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakSet

from torch._ops import OperatorBase
from torch.export import ExportedProgram
from torch.fx import GraphModule

from safe_arm.acceleration.shortcuts import shortcuts, taking
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import call_functions

Table = Mapping[OperatorBase, Callable[..., Any]]


def merged() -> AbstractContextManager[None]:
    """Put the functionalisation off until there is something to decompose, in this thread, while the block runs."""
    return taking(functional=WeakSet(), materialized=[])


def materializing_once(stock: Callable[[], None]) -> Callable[[], None]:
    """Wrap the filling of torch's table of operators, once for each namespace: one time in the block of ``merged``."""

    def _materialize_cpp_cia_ops() -> None:
        done = shortcuts().materialized
        if done is None:
            stock()
        elif not done:
            stock()
            done.append(True)

    return _materialize_cpp_cia_ops


def merging(stock: Callable[..., ExportedProgram]) -> Callable[..., ExportedProgram]:
    """Wrap a program's decomposition: in the block of ``merged`` the first two are one."""

    def run_decompositions(
        self: ExportedProgram, decomp_table: Table | None = None, **kwargs: Any
    ) -> ExportedProgram:
        functional = shortcuts().functional
        if functional is None or decomp_table is None or kwargs:
            return stock(self, decomp_table, **kwargs)
        if not decomp_table:
            return self
        if self in functional:
            if not _calls_any_of(self.graph_module, decomp_table):
                return self
            return stock(self, decomp_table)
        decomposed = attempted(stock, self, decomp_table)
        if isinstance(decomposed, Caught):
            decomposed = stock(stock(self, {}), decomp_table)
        functional.add(decomposed)
        return decomposed

    return run_decompositions


def _calls_any_of(graph_module: GraphModule, table: Table) -> bool:
    return any(node.target in table for node in call_functions(graph_module))
