"""Bound how near to a tie the truncated bits of a sum of int16 products can bring a value."""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from safe_arm.core.island import QParams, op_name
from safe_arm.verification.distance import code_step
from safe_arm.verification.evaluation import Evaluation

_CODES = 2.0**15


def slack(nodes: Sequence[Node], evaluation: Evaluation) -> float:
    """Return the extra distance from a tie, in codes, within which a unit's result may go to either code.

    A sum bounded by B keeps 31 bits (passes/rescale_wide_sums.py). The last bit is worth B / 2**30 at most. The rest is
    rounded, so the error is at most half of that, B / 2**31. The bound of a convolution or linear is the sum of its
    absolute weights times 2**15 codes of its input. That of a matrix product is 2**15 codes times 2**15 codes a term.

    Args:
        nodes: the operators of one unit.
        evaluation: has their values, and which of them are codes of the output.
    """
    steps = []
    bound = 0.0
    for node in nodes:
        q = QParams.of(node)
        if q is not None and node in evaluation.unrounded:
            steps.append(q.scale)
        if op_name(node) in _BOUNDS:
            step = code_step(node.args[0])  # type: ignore[arg-type]
            if step is not None:  # Otherwise an input is no code.
                largest = _BOUNDS[op_name(node)](node, evaluation) * step * _CODES
                bound = max(bound, largest)
    return bound * 2.0**-31 / min(steps) if steps else 0.0


def _of_weights(node: Node, evaluation: Evaluation) -> float:
    weight = evaluation.values[node.args[1]].abs()  # type: ignore[index]
    transposed = op_name(node) == "aten::convolution" and node.args[6]
    if transposed:  # Inputs come first, outputs second.
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
