"""The way from the exported program to the edge program, made leaner for programs that go to our partitioner alone.

``to_edge_transform_and_lower`` makes a dozen traces before a partitioner sees the program. The result stays as it is,
node by node; of the traces, those that change nothing become cheap or are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from executorch.exir.program import _program

from safe_arm._compat import decompositions, fake_values, late_code, provenance, signatures


def install(ours: Callable[[Any], bool]) -> Callable[[], None]:
    """Let ``to_edge_transform_and_lower`` ask whether a program is ours.

    Args:
        ours: whether a partitioner is one of ours.

    Returns:
        What puts the stock function back.
    """
    stock = _program._gen_edge_manager_for_partitioners

    @functools.wraps(stock)
    def generate(partitioner: Any, *args: Any, **kwargs: Any) -> Any:
        partitioners = [each for of_method in (partitioner or {}).values() for each in of_method]
        if not partitioners or not all(map(ours, partitioners)):
            return stock(partitioner, *args, **kwargs)
        with (
            decompositions.merged(),
            fake_values.remembered(),
            late_code.late(),
            provenance.shared(),
            signatures.cached(),
        ):
            return stock(partitioner, *args, **kwargs)

    _program._gen_edge_manager_for_partitioners = generate
    return lambda: setattr(_program, "_gen_edge_manager_for_partitioners", stock)
