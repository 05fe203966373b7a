"""One decomposition of a program on its way to our partitioner, where ExecuTorch makes three.

``to_edge_transform_and_lower`` functionalises a program, decomposes what no partitioner wants whole, and decomposes
once more after asking the filters. Each is a full trace. The first two can be one; the third has nothing to do unless
a filter gave something up. For each of them torch also looks through all operators there are for those that decompose
themselves; once will do.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

from torch import _ops
from torch._export import utils
from torch._ops import OperatorBase
from torch.export import ExportedProgram, decomp_utils, exported_program
from torch.fx import GraphModule

from safe_arm._compat.patches import Patch
from safe_arm.core.context import bound
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import call_functions

Table = Mapping[OperatorBase, Callable[..., Any]]

_functional: ContextVar[WeakSet[ExportedProgram] | None] = ContextVar("safe_arm_functional", default=None)
_filled: ContextVar[bool] = ContextVar("safe_arm_operators_filled", default=False)
_composite: ContextVar[list[frozenset[OperatorBase]] | None] = ContextVar("safe_arm_composite", default=None)


@contextmanager
def merged() -> Iterator[None]:
    """Put the functionalisation off until there is something to decompose, in this thread, while the block runs."""
    with bound(_functional, WeakSet()), bound(_composite, []):
        yield


def _collected_once(stock: Callable[[], set[OperatorBase]]) -> Callable[[], set[OperatorBase]]:
    def _collect_all_valid_cia_ops() -> set[OperatorBase]:
        known = _composite.get()
        if known is None:
            return stock()
        if not known:
            utils._materialize_cpp_cia_ops()
            with bound(_filled, True):
                known.append(frozenset(stock()))
        return set(known[0])

    return _collect_all_valid_cia_ops


def _filled_once(stock: Callable[[], None]) -> Callable[[], None]:
    def _materialize_cpp_cia_ops() -> None:
        if not _filled.get():
            stock()

    return _materialize_cpp_cia_ops


def _merging(stock: Callable[..., ExportedProgram]) -> Callable[..., ExportedProgram]:
    def run_decompositions(self: ExportedProgram, decomp_table: Table | None = None, **kwargs: Any) -> ExportedProgram:
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

    return run_decompositions


def _both(stock: Callable[..., ExportedProgram], program: ExportedProgram, table: Table) -> ExportedProgram:
    decomposed = attempted(stock, program, table)
    return stock(stock(program, {}), table) if isinstance(decomposed, Caught) else decomposed


def _calls_any_of(graph_module: GraphModule, table: Table) -> bool:
    return any(node.target in table for node in call_functions(graph_module))


PATCHES = (
    Patch(ExportedProgram, "run_decompositions", _merging, "ExecuTorch traces a program three times to decompose it."),
    *(
        Patch(
            module, "_collect_all_valid_cia_ops", _collected_once, "For each trace torch looks through all operators."
        )
        for module in (decomp_utils, exported_program)
    ),
    Patch(utils, "_materialize_cpp_cia_ops", _filled_once, "For each namespace torch asks for the names of all again."),
    # typing remembers what it was asked for before, collections.abc builds it anew.
    Patch(_ops, "Callable", lambda _: typing.Callable, "Annotations are evaluated for each of thousands of operators."),
)
