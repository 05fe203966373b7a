"""Torch's tables of composite operators, filled in less time, for stock too: half of lowering a small net."""

import copy
import functools
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from executorch.exir.program import _program
from torch._decomp import global_decomposition_table
from torch._export import utils
from torch._subclasses import fake_impls
from torch.export import decomp_utils, exported_program

from safe_arm.acceleration import decompositions


def filled_quickly() -> None:
    """Patch torch for the rest of the process; what the tables hold is the same, see the tests."""
    if hasattr(utils._collect_all_valid_cia_ops, "stock"):
        return
    stock = utils._collect_all_valid_cia_ops
    for module in (utils, exported_program, decomp_utils):
        if module._collect_all_valid_cia_ops is stock:
            module._collect_all_valid_cia_ops = _filling_once(stock)
    override = exported_program._override_composite_implicit_decomp
    exported_program._override_composite_implicit_decomp = functools.wraps(override)(overridden_again)
    decompositions.overridden_at_once = overridden_again
    split = exported_program._split_decomp_table_to_cia_and_python_decomp
    exported_program._split_decomp_table_to_cia_and_python_decomp = _splitting_once(split)
    _program._default_decomposition_table = _making_once(_program._default_decomposition_table)


def _filling_once(stock):
    """Fill the table again when an operator, a kernel of a composite one or a namespace has come or gone."""
    kept = {}

    @functools.wraps(stock)  # With its signature; tests/compat/test_surface.py looks.
    def collect_all_valid_cia_ops():
        fill = utils._materialize_cpp_cia_ops  # Ours, while it is installed.
        known = registered()
        if known in kept:
            return kept[known]
        fill()
        utils._materialize_cpp_cia_ops = lambda: None
        try:
            table = stock()
        finally:
            utils._materialize_cpp_cia_ops = fill
        kept.clear()
        kept[registered()] = table
        return table

    collect_all_valid_cia_ops.stock = stock
    return collect_all_valid_cia_ops


def _splitting_once(stock):
    """Split a table as the last one that was equal, while the same operators are registered."""
    kept = {}

    @functools.wraps(stock)
    def split(decomp_table):
        known = registered()
        for table, composite, others in kept.get(known, ()):
            if table == decomp_table:
                return dict(composite), dict(others)
        table = dict(decomp_table)
        composite, others = stock(decomp_table)
        if known not in kept:
            kept.clear()
        kept.setdefault(known, []).append((table, dict(composite), dict(others)))
        return composite, others

    split.stock = stock
    return split


def _making_once(stock):
    """Copy a table that was made while the same operators were registered."""
    kept = {}

    @functools.wraps(stock)
    def make(*args, **kwargs):
        known = registered(), len(global_decomposition_table["post_autograd"]), args, tuple(kwargs.items())
        if known not in kept:
            kept.clear()
            table = kept[known] = stock(*args, **kwargs)
            table.materialize()
        table = copy.copy(kept[known])  # Its own copy() fills another first.
        table.decomp_table = dict(table.decomp_table)
        table.deleted_custom_ops = set(table.deleted_custom_ops)
        return table

    make.stock = stock
    return make


AT_ONCE = decompositions.overridden_at_once


class Overridden(NamedTuple):
    """What an override made of an operator.

    Attributes:
        before: its kernels as they were, the operator's own.
        number: how many there were.
        decomposition: what it was overridden with.
        kernels: its kernels then.
        implementation: what computes it for fake tensors.
    """

    before: dict
    number: int
    decomposition: Callable
    kernels: dict
    implementation: Callable


#: By composite operator, the last override.
LAST = {}


@contextmanager
def overridden_again(composite):
    """Override composite operators as ``overridden_at_once`` does, with the kernels that it made the last time."""
    if not all(_is_known(op, decomposition) for op, decomposition in composite.items()):
        _learn(composite)
    implementations = fake_impls.op_implementations_dict
    mine = {op: LAST[op] for op in composite}
    for op, each in mine.items():
        implementations.setdefault(op, each.implementation)
        op.py_kernels = dict(each.kernels)
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, each in mine.items():
            op.py_kernels = each.before
            op._dispatch_cache.clear()
            implementations.pop(op, None)


def _is_known(op, decomposition):
    last = LAST.get(op)
    if last is None or last.decomposition is not decomposition:
        return False
    return op.py_kernels is last.before and len(last.before) == last.number


def _learn(composite):
    numbers = {op: len(op.py_kernels) for op in composite}
    with AT_ONCE(composite):
        kernels = {op: dict(op.py_kernels) for op in composite}
    for op, decomposition in composite.items():
        implementation = partial(decompositions._run_original, original=utils._get_decomp_for_cia(op))
        LAST[op] = Overridden(op.py_kernels, numbers[op], decomposition, kernels[op], implementation)


def registered():
    """Return what changes when an operator or a kernel is registered, or a library is loaded."""
    looked_up = sum(len(getattr(torch.ops, namespace)._dir) for namespace in torch.ops._dir)
    library = torch.library
    return frozenset(library._defs), frozenset(library._impls), len(torch.ops.loaded_libraries), looked_up
