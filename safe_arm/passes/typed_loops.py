"""A loop is traced with operands of the dtype that its codes have (known issue T68)."""

from __future__ import annotations

from types import MethodType

import torch

from safe_arm._compat.upstream import ExportPass, NodeMetadata, ProxyValue


def trace_loops_of_codes(graph_pass: object) -> None:
    """Let a pass trace loops whose operands are not of the dtype of their codes yet.

    Until it becomes a table, an operator such as tanh is traced to floats, and the body of a loop that reads it returns
    codes. Torch raises on a loop whose body returns another dtype than it reads.

    Args:
        graph_pass: a pass of the pipeline; changed in place if it traces graphs.
    """
    if isinstance(graph_pass, ExportPass):
        graph_pass.call_while = MethodType(_call_while, graph_pass)


def _call_while(
    graph_pass: ExportPass,
    condition: torch.fx.GraphModule,
    body: torch.fx.GraphModule,
    carried: list[ProxyValue],
    additional: list[ProxyValue],
    meta: NodeMetadata,
) -> ProxyValue:
    typed = type(carried)(map(_of_codes, carried))
    stock = type(graph_pass).call_while
    return stock(graph_pass, condition, body, typed, additional, meta)


def _of_codes(value: ProxyValue) -> ProxyValue:
    """Return a value with the dtype of its codes."""
    qparams = list(value.node.meta.get("output_qparams", {}).values())
    if not qparams or value.data.dtype == qparams[0].dtype:
        return value
    codes = torch.empty_like(value.data, dtype=qparams[0].dtype)
    return ProxyValue(codes, value.proxy)
