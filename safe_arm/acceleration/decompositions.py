"""Decompose a program once on its way to SafeArmPartitioner, where ExecuTorch does so three times.

``to_edge_transform_and_lower`` functionalises a program, decomposes the operators that no partitioner wants whole, and
decomposes once more after asking the filters. Each of the three is a full trace. The first two can be one. The third
has nothing to do unless a filter gave something up. Each time torch also asks for the names of all operators, once for
each namespace, where once is enough, and overrides some twenty kernels of each of 558 operators, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from weakref import WeakSet

from torch._C import DispatchKey
from torch._export import utils
from torch._higher_order_ops.utils import autograd_not_implemented
from torch._ops import OperatorBase, OpOverload
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram, exported_program

from safe_arm.acceleration.shortcuts import shortcuts, taking
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import call_functions

Table = Mapping[OperatorBase, Callable[..., Any]]
Composite = Mapping[OpOverload, Callable[..., Any]]
Override = Callable[[Composite], AbstractContextManager[None]]


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
            for node in call_functions(self.graph_module):
                if node.target in decomp_table:
                    return stock(self, decomp_table)
            return self
        decomposed = attempted(stock, self, decomp_table)
        if isinstance(decomposed, Caught):
            decomposed = stock(stock(self, {}), decomp_table)
        functional.add(decomposed)
        return decomposed

    return run_decompositions


@contextmanager
def overridden_at_once(composite: Composite) -> Iterator[None]:
    """Override the kernels of composite operators while the block runs, as torch does, each operator's in one go.

    Source: ``torch.export.exported_program._override_composite_implicit_decomp`` (torch 2.10 to 2.13).

    Args:
        composite: the decomposition of each operator.
    """
    kernels_before = {op: op.py_kernels.copy() for op in composite}
    for op, decomposition in composite.items():
        kernels = op.py_kernels
        original = utils._get_decomp_for_cia(op)
        without_gradient = autograd_not_implemented(op, deferred_error=True)
        for key in exported_program._AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE:
            kernels.setdefault(key, without_gradient)
        kernels[DispatchKey.CompositeImplicitAutograd] = decomposition
        for key in exported_program._BACKEND_KEYS_TO_OVERRIDE:
            kernels.setdefault(key, original)
        op._dispatch_cache.clear()
        if op not in fake_impls.op_implementations_dict:
            fake_impls.register_op_impl(op)(partial(_run_original, original=original))
    try:
        yield
    finally:
        for op, kernels in kernels_before.items():
            op.py_kernels.clear()
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()
            fake_impls._deregister_op_impl(op)


def _run_original(
    fake_mode: FakeTensorMode,
    op: OpOverload,
    *args: Any,
    original: Callable[..., Any],
    **kwargs: Any,
) -> Any:
    with fake_mode:
        return original(*args, **kwargs)


def overriding(stock: Override) -> Override:
    """Wrap the override of kernels: in the block of ``merged`` each operator's are overridden at once."""

    def _override_composite_implicit_decomp(
        cia_ops_to_callable: Composite,
    ) -> AbstractContextManager[None]:
        if shortcuts().materialized is None:
            return stock(cia_ops_to_callable)
        return overridden_at_once(cia_ops_to_callable)

    return _override_composite_implicit_decomp
