"""Torch's tables of composite operators, filled in less time, for stock too: half of lowering a small net."""

import functools

import torch
from torch._export import utils
from torch.export import decomp_utils, exported_program

from safe_arm.acceleration.decompositions import overridden_at_once


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
