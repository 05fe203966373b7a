"""Evaluate a quantised graph in double precision, where its integer arithmetic is exact."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from safe_arm.core.island import op_name


def evaluate_in_double(graph_module: GraphModule) -> None:
    """Make dequantise nodes give doubles, in place, so that everything up to the next quantiser is exact.

    Eager float32 puts a value that lies within 1e-5 of the middle between two codes on either side. A delegate, which
    computes with integers, does not; in a net of millions of values that alone makes outputs differ by a code.
    """
    for node in graph_module.graph.nodes:
        node.target = _IN_DOUBLE.get(op_name(node), node.target)
    graph_module.recompile()


def _quantize(x: Tensor, scale: float, zero: int, low: int, high: int, dtype: torch.dtype) -> Tensor:
    if x.dtype != torch.float64:  # The input of the network is float32 on the device too.
        return torch.ops.quantized_decomposed.quantize_per_tensor(x, scale, zero, low, high, dtype)
    return ((x / scale).round() + zero).clamp(low, high).to(dtype)


def _dequantize(x: Tensor, scale: float, zero: int, *_: Any, **__: Any) -> Tensor:
    return (x.double() - zero) * scale


def _dequantize_per_channel(x: Tensor, scales: Tensor, zeros: Tensor, axis: int, *_: Any, **__: Any) -> Tensor:
    shape = [-1 if dim == axis else 1 for dim in range(x.dim())]
    return (x.double() - zeros.view(shape)) * scales.double().view(shape)


_IN_DOUBLE = {
    "quantized_decomposed::quantize_per_tensor": _quantize,
    "quantized_decomposed::dequantize_per_tensor": _dequantize,
    "quantized_decomposed::dequantize_per_channel": _dequantize_per_channel,
}
