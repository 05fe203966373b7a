"""Between which real values a node of a quantised graph lies, whatever the inputs are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from torch import Tensor
from torch.fx import Node

from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import PASS_THROUGH, QUANTIZE, QParams, is_dequantize, op_name

#: How many operators back anything is looked for.
_DEPTH = 64
#: Roundings that are as near to either code may go to both; so may what is this near to one, in codes.
_TIE = 1e-6


class Range(NamedTuple):
    """The least and the greatest value, infinite where nothing is known."""

    low: float
    high: float


ANYTHING = Range(-math.inf, math.inf)


@dataclass
class Ranges:
    """The ranges of a graph's nodes, each looked for once.

    Attributes:
        look_up: gives the values of the placeholders that hold some, asked for at most once.
    """

    look_up: Callable[[], Mapping[Node, Tensor]] = dict
    _known: dict[Node, Range] = field(default_factory=dict)

    @cached_property
    def _constants(self) -> Mapping[Node, Tensor]:
        return self.look_up()

    def of(self, node: object, depth: int = _DEPTH) -> Range:
        """Return between which values all elements of a node lie; the range may be too wide, never too narrow.

        Args:
            node: an operator, a placeholder, or a number as operators take it.
            depth: how many operators back to look at most.
        """
        if isinstance(node, (int, float)):
            return Range(node, node)
        if not isinstance(node, Node):
            return ANYTHING
        if node not in self._known:
            self._known[node] = self._found(node, depth)
        return self._known[node]

    def _found(self, node: Node, depth: int) -> Range:
        held = self._constants.get(node) if node.op == "placeholder" else None
        if held is not None:
            ends = attempted(
                held.aminmax
            )  # An empty or a complex tensor, one of 8-bit floats has none.
            return (
                ANYTHING if isinstance(ends, Caught) else _known_ends(*map(float, ends))
            )
        name = op_name(node)
        rule = _RULES.get(name)
        if (
            name in _IMAGES
            or rule is None
            or not depth
            or node.kwargs.get("alpha", 1) != 1
        ):
            return _IMAGES.get(name, ANYTHING)
        return _known_ends(*rule(node, lambda each: self.of(each, depth - 1)))


def _known_ends(low: float, high: float) -> Range:
    return ANYTHING if math.isnan(low) or math.isnan(high) else Range(low, high)


_Look = Callable[[object], Range]


def _same(node: Node, look: _Look) -> Range:
    return look(node.args[0])


def _quantised(node: Node, look: _Look) -> Range:
    """Codes, as a quantiser gives them: of values within a range and within that of the codes."""
    q = QParams.of(node)
    if q is None:
        return ANYTHING
    low, high = (each / q.scale + q.zero_point for each in look(node.args[0]))
    least = q.qmin if low <= q.qmin else min(math.floor(low + 0.5 - _TIE), q.qmax)
    most = q.qmax if high >= q.qmax else max(math.ceil(high - 0.5 + _TIE), q.qmin)
    return Range(least, most)


def _dequantised(node: Node, look: _Look) -> Range:
    q = QParams.of(node)
    if q is None:
        return ANYTHING
    low, high = look(node.args[0])
    return Range(
        (max(low, q.qmin) - q.zero_point) * q.scale,
        (min(high, q.qmax) - q.zero_point) * q.scale,
    )


def _added(node: Node, look: _Look) -> Range:
    (a, b), (c, d) = look(node.args[0]), look(node.args[1])
    return Range(a + c, b + d)


def _multiplied(node: Node, look: _Look) -> Range:
    one, other = look(node.args[0]), look(node.args[1])
    corners = [0.0 if 0 in (a, b) else a * b for a in one for b in other]
    squared = _carrier(node.args[0]) is _carrier(node.args[1])
    return Range(max(0.0, min(corners)) if squared else min(corners), max(corners))


def _carrier(node: object) -> object:
    """Skip a dequantiser: one for each user reads the same codes."""
    return node.args[0] if isinstance(node, Node) and is_dequantize(node) else node


def _summed(node: Node, look: _Look) -> Range:
    low, high = look(node.args[0])
    return Range(0.0 if low >= 0 else -math.inf, 0.0 if high <= 0 else math.inf)


def _no_less_than_zero(node: Node, look: _Look) -> Range:
    return Range(*(max(0.0, each) for each in look(node.args[0])))


def _without_sign(node: Node, look: _Look) -> Range:
    low, high = look(node.args[0])
    return Range(max(0.0, low, -high), max(-low, high))


def _clamped(node: Node, look: _Look) -> Range:
    low, high = look(node.args[0])
    least, most = (
        node.args[place] if len(node.args) > place else None for place in (1, 2)
    )
    for bound, pick in ((least, max), (most, min)):
        if isinstance(bound, (int, float)):
            low, high = pick(low, bound), pick(high, bound)
    return Range(low, high)


#: Values of functions, whatever they are given.
_IMAGES: dict[str, Range] = {
    **dict.fromkeys(("aten::exp", "aten::sqrt", "aten::rsqrt"), Range(0.0, math.inf)),
    **dict.fromkeys(
        ("aten::sigmoid", "aten::hardsigmoid", "aten::softmax", "aten::_softmax"),
        Range(0.0, 1.0),
    ),
    **dict.fromkeys(
        ("aten::tanh", "aten::sin", "aten::cos", "aten::erf"), Range(-1.0, 1.0)
    ),
    "aten::cosh": Range(1.0, math.inf),
}
_MOVES = (
    "aten::mean",
    "aten::amax",
    "aten::amin",
    "aten::slice",
    "aten::slice_copy",
    "aten::select_copy",
)
_RULES: dict[str, Callable[[Node, _Look], Range]] = {
    **dict.fromkeys((*PASS_THROUGH, *_MOVES), _same),
    **dict.fromkeys(("aten::clamp", "aten::hardtanh"), _clamped),
    QUANTIZE: _quantised,
    "quantized_decomposed::dequantize_per_tensor": _dequantised,
    "aten::add": _added,
    "aten::mul": _multiplied,
    "aten::sum": _summed,
    "aten::relu": _no_less_than_zero,
    "aten::abs": _without_sign,
}
