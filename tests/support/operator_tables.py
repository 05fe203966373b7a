"""Torch's table of composite operators, filled once a look, not once a namespace: a quarter of lowering a small net."""

from __future__ import annotations

import functools

from torch._export import utils
from torch.export import decomp_utils, exported_program


def filled_once() -> None:
    """Patch torch for the rest of the process; what is collected is the same, see the test."""
    if not hasattr(utils._collect_all_valid_cia_ops, "stock"):
        stock = utils._collect_all_valid_cia_ops
        for module in (utils, exported_program, decomp_utils):
            if module._collect_all_valid_cia_ops is stock:
                module._collect_all_valid_cia_ops = _filling_once(stock)


def _filling_once(stock):
    @functools.wraps(stock)  # With its signature; tests/compat/test_surface.py looks.
    def collect_all_valid_cia_ops():
        fill = utils._materialize_cpp_cia_ops  # Ours, while it is installed.
        fill()
        utils._materialize_cpp_cia_ops = lambda: None
        try:
            return stock()
        finally:
            utils._materialize_cpp_cia_ops = fill

    collect_all_valid_cia_ops.stock = stock
    return collect_all_valid_cia_ops
