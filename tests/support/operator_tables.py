"""Torch's tables of composite operators, filled in less time, for stock too: half of lowering a small net."""

import functools
from contextlib import contextmanager
from functools import partial

import torch
from torch._C import DispatchKey
from torch._export import utils
from torch._higher_order_ops.utils import autograd_not_implemented
from torch._subclasses import fake_impls
from torch.export import decomp_utils, exported_program


def filled_quickly() -> None:
    """Patch torch for the rest of the process; what the tables hold is the same, see the tests."""
    if not hasattr(utils._collect_all_valid_cia_ops, "stock"):
        stock = utils._collect_all_valid_cia_ops
        for module in (utils, exported_program, decomp_utils):
            if module._collect_all_valid_cia_ops is stock:
                module._collect_all_valid_cia_ops = _filling_once(stock)
        override = exported_program._override_composite_implicit_decomp
        exported_program._override_composite_implicit_decomp = functools.wraps(override)(overridden_at_once)


def _filling_once(stock):
    """Fill the table again when an operator, a kernel of a composite one or a namespace has come or gone."""
    kept = {}

    @functools.wraps(stock)  # With its signature; tests/compat/test_surface.py looks.
    def collect_all_valid_cia_ops():
        fill = utils._materialize_cpp_cia_ops  # Ours, while it is installed.
        known = _registered()
        if known in kept:
            return kept[known]
        fill()
        utils._materialize_cpp_cia_ops = lambda: None
        try:
            table = stock()
        finally:
            utils._materialize_cpp_cia_ops = fill
        kept.clear()
        kept[_registered()] = table
        return table

    collect_all_valid_cia_ops.stock = stock
    return collect_all_valid_cia_ops


def _registered():
    names = torch._C._dispatch_get_registrations_for_dispatch_key
    looked_up = sum(len(getattr(torch.ops, namespace)._dir) for namespace in torch.ops._dir)
    return tuple(names("")), tuple(names("CompositeImplicitAutograd")), looked_up


@contextmanager
def overridden_at_once(composite):
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


def _run_original(fake_mode, op, *args, original, **kwargs):
    with fake_mode:
        return original(*args, **kwargs)
