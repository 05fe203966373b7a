"""Measure how far a delegate's value is from the quantised graph's: in codes, or relative for real floats."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.core.differences import absolute_difference, largest
from safe_arm.core.island import QParams, is_dequantize, is_marked_quantized, op_name
from safe_arm.core.operators import VIEWS
from safe_arm.verification.evaluation import Evaluation
from safe_arm.verification.rounding import subnormal, unknown

#: A value this close to the middle between two codes, in codes, may be rounded to either. TOSA rounds ties up and
#: PyTorch to even; scales are float32, so a value of n codes may be n * 2**-23 off.
_TIE = 1e-4
_TIE_RELATIVE = 1e-6
#: A dequantised value that is off its code by more than this, in codes, and than its dtype, counts as a code off.
_OFF_GRID = 1e-3
#: Roundings of a scale and of its product with a code, relative to the value, in 16-bit floats.
_NARROW = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
#: Floats below this may be flushed to 0.
_TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class Distance:
    """The difference of two tensors.

    Attributes:
        worst: the largest beyond rounding; in codes, or for real floats relative to the largest of them.
        wrong: how many values differ by more than half a code, or real floats by more than rounding (rounding.py).
        of: how many values there are.
        codes: whether ``worst`` is in codes.
    """

    worst: float
    wrong: int
    of: int
    codes: bool = True

    def __str__(self) -> str:
        if not self.codes:
            return f"up to {self.worst:.2g} of its size in {self.wrong} of {self.of} values"
        return f"up to {self.worst:.0f} code{'s' * (self.worst != 1)} in {self.wrong} of {self.of} values"


def distance(node: Node, actual: Tensor, evaluation: Evaluation) -> Distance:
    """Compare what a delegate computed for a node with an evaluation.

    Args:
        node: a node of the delegate's graph.
        actual: the delegate's tensor, in the node's shape.
        evaluation: has the node's value, and what a real float may be off.
    """
    expected = evaluation.values[node]
    step = code_step(node)
    if node in evaluation.unrounded:
        apart = _from_unrounded(node, actual, evaluation)
    elif not expected.is_floating_point():
        apart = (actual.double() - expected.double()).abs()
    elif step is not None:
        relative = max(_TIE_RELATIVE, _NARROW.get(actual.dtype, 0.0))
        allowed = _OFF_GRID + relative * expected.abs() / step
        in_codes = absolute_difference(actual, expected) / step
        apart = (in_codes - allowed).ceil().clamp(min=0)
    else:
        apart = relative_beyond_rounding(node, actual, evaluation)
    codes = step is not None or not expected.is_floating_point()
    if not apart.numel():
        return Distance(0.0, 0, 0, codes)
    worst = float(apart.max())
    count = int((apart > 0).sum())
    return Distance(worst, count, apart.numel(), codes)


def _from_unrounded(node: Node, actual: Tensor, evaluation: Evaluation) -> Tensor:
    """Return by how many codes values differ from the nearest code that a quantiser may round its input to."""
    q = QParams.of(node)
    assert q is not None
    unrounded = evaluation.unrounded[node]
    error = evaluation.slack + (evaluation.errors or {}).get(node, 0.0)
    off = (actual.double() - unrounded.clamp(q.qmin, q.qmax)).abs()
    allowed = 0.5 + _TIE + _TIE_RELATIVE * (unrounded - q.zero_point).abs() + error
    # NaN has no code: TOSA and PyTorch do not define which one it becomes.
    fits = (off <= allowed) | unrounded.isnan()
    codes = (off - 0.5).ceil().clamp(min=1)
    return torch.where(fits, torch.zeros_like(off), codes)


def near_middle(unrounded: Tensor) -> Tensor:
    """Tell which values, in codes, are so nearly halfway between two codes that a device may round them to either."""
    off = (unrounded - unrounded.floor() - 0.5).abs()
    return off <= _TIE + _TIE_RELATIVE * unrounded.abs()


def codes_apart(node: Node, actual: Tensor, evaluation: Evaluation) -> Tensor | None:
    """Return by how many codes each value differs from an evaluation, ties included; None for a real float.

    A value that is NaN before it is quantised has no code, so it differs by 0. Integers that are no codes, such as
    those of ``argmax``, differ by their difference.

    Args:
        node: a node of the delegate's graph.
        actual: the delegate's tensor, in the node's shape.
        evaluation: has the node's value.
    """
    expected = evaluation.values[node]
    if expected.is_floating_point():
        step = code_step(node)
        if step is None:
            return None
        return (absolute_difference(actual, expected) / step).round()
    apart = (actual.double() - expected.double()).abs()
    unrounded = evaluation.unrounded.get(node)
    if unrounded is None:
        return apart
    return apart.masked_fill(unrounded.isnan(), 0.0)


def relative_beyond_rounding(
    node: Node, actual: Tensor, evaluation: Evaluation
) -> Tensor:
    """Return by how much each real float differs beyond its rounding, relative to the largest of the tensor."""
    expected = evaluation.values[node]
    off = (evaluation.errors or {}).get(node)
    size = largest(expected)
    most = unknown(node) * size
    if off is None:
        bound = most if is_marked_quantized(node) else 0.0
        off = torch.full_like(expected, bound, dtype=torch.float64)
    allowed = torch.where(off.isfinite(), off, most) + _TINY + subnormal(node)
    # Values that overflow do so on the device as well.
    apart = absolute_difference(actual, expected.to(actual.dtype))
    relative = apart / max(size, largest(actual), _TINY)
    return torch.where(apart <= allowed, torch.zeros_like(apart), relative)


def code_step(node: Node) -> float | None:
    """Return the step of a float that is a dequantised code, maybe moved; None for a real float."""
    while op_name(node) in VIEWS and isinstance(node.args[0], Node):
        node = node.args[0]
    q = QParams.of(node) if is_dequantize(node) else None
    return None if q is None else q.scale
