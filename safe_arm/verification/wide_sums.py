"""Sums of int16 products, of which TOSA rescales 31 bits: how near to a tie what is cut off can bring a value."""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from safe_arm.core.island import QParams, op_name
from safe_arm.verification.distance import code_step
from safe_arm.verification.evaluation import Evaluation

_CODES = 2.0**15


def slack(nodes: Sequence[Node], evaluation: Evaluation) -> float:
    """Return how much nearer to the middle between two codes what a unit computes may be and go to either, in codes.

    Of a sum bounded by B, 31 bits are kept (passes/rescale_wide_sums.py). The last is worth B / 2**30 at most, and what
    is cut off is rounded: by half of that, B / 2**31. A convolution or linear is bounded by the sizes of its weights
    times 2**15 codes of its input, a matrix product by its terms, each of 2**15 codes times 2**15.

    Args:
        nodes: the operators of one unit.
        evaluation: has their values, and which of them are codes of the output.
    """
    steps = [
        q.scale
        for node in nodes
        if node in evaluation.unrounded and (q := QParams.of(node)) is not None
    ]
    bounds = [_bound(node, evaluation) for node in nodes if op_name(node) in _BOUNDS]
    return max(bounds, default=0.0) * 2.0**-31 / min(steps) if steps else 0.0


def _bound(node: Node, evaluation: Evaluation) -> float:
    """Return the largest sum that codes of the inputs can give, as a float; 0 where an input is no code."""
    step = code_step(node.args[0])  # type: ignore[arg-type]
    return (
        0.0
        if step is None
        else _BOUNDS[op_name(node)](node, evaluation) * step * _CODES
    )


def _of_weights(node: Node, evaluation: Evaluation) -> float:
    weight = evaluation.values[node.args[1]].abs()  # type: ignore[index]
    if (
        op_name(node) == "aten::convolution" and node.args[6]
    ):  # Transposed: inputs first, outputs second.
        weight = weight.transpose(0, 1)
    return float(weight.flatten(1).sum(1).max())


def _of_terms(node: Node, evaluation: Evaluation) -> float:
    step = code_step(node.args[1])  # type: ignore[arg-type]
    if step is None:
        return 0.0
    terms = evaluation.values[node.args[0]].shape[-1]  # type: ignore[index]
    return terms * step * _CODES


_BOUNDS = {
    "aten::convolution": _of_weights,
    "aten::linear": _of_weights,
    "aten::bmm": _of_terms,
}
