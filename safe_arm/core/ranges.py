"""The range of real values that a node of a quantised graph can take, whatever the inputs are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from torch import Tensor
from torch.fx import Node

from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import QUANTIZE, QParams, is_dequantize, op_name
from safe_arm.core.operators import ElementOrigin, named, operators

#: Maximum number of operators that a range is followed back through.
_DEPTH = 64
#: Distance, in codes, from a tie within which rounding may go either way.
_TIE = 1e-6


class Range(NamedTuple):
    """The least and the greatest value, infinite where nothing is known."""

    low: float
    high: float


ANYTHING = Range(-math.inf, math.inf)


@dataclass
class Ranges:
    """The ranges of a graph's nodes, each computed once.

    Attributes:
        look_up: returns the values of the placeholders and attributes that hold constants; called at most once.
    """

    look_up: Callable[[], Mapping[Node, Tensor]] = dict
    _ranges: dict[Node, Range] = field(default_factory=dict)

    @cached_property
    def _constants(self) -> Mapping[Node, Tensor]:
        return self.look_up()

    def of(self, node: object, depth: int = _DEPTH) -> Range:
        """Return the range of all elements of a node; it may be too wide, never too narrow.

        Args:
            node: an operator, a placeholder, or a number as operators take it.
            depth: maximum number of operators to follow back.
        """
        if isinstance(node, (int, float)):
            return Range(node, node)
        if not isinstance(node, Node):
            return ANYTHING
        if node not in self._ranges:
            self._ranges[node] = self._computed(node, depth)
        return self._ranges[node]

    def _computed(self, node: Node, depth: int) -> Range:
        if node.op in ("placeholder", "get_attr") and node in self._constants:
            # Empty, complex and 8-bit float tensors have no minimum.
            ends = attempted(self._constants[node].detach().aminmax)
            if isinstance(ends, Caught):
                return ANYTHING
            return _without_nan(float(ends[0]), float(ends[1]))
        name = op_name(node)
        if name in _IMAGES:
            return _IMAGES[name]
        rule = _RULES.get(name)
        if rule is None or not depth or node.kwargs.get("alpha", 1) != 1:
            return ANYTHING
        low, high = rule(node, lambda source: self.of(source, depth - 1))
        return _without_nan(low, high)


def _without_nan(low: float, high: float) -> Range:
    if math.isnan(low) or math.isnan(high):
        return ANYTHING
    return Range(low, high)


_RangeOf = Callable[[object], Range]


def _same(node: Node, range_of: _RangeOf) -> Range:
    return range_of(node.args[0])


def _quantised(node: Node, range_of: _RangeOf) -> Range:
    """Return the range of the codes of a quantiser."""
    q = QParams.of(node)
    if q is None:
        return ANYTHING
    low, high = range_of(node.args[0])
    low, high = low / q.scale + q.zero_point, high / q.scale + q.zero_point
    least = q.qmin
    greatest = q.qmax
    if low > q.qmin:
        least = min(math.floor(low + 0.5 - _TIE), q.qmax)
    if high < q.qmax:
        greatest = max(math.ceil(high - 0.5 + _TIE), q.qmin)
    return Range(least, greatest)


def _dequantised(node: Node, range_of: _RangeOf) -> Range:
    q = QParams.of(node)
    if q is None:
        return ANYTHING
    low, high = range_of(node.args[0])
    return Range(
        (max(low, q.qmin) - q.zero_point) * q.scale,
        (min(high, q.qmax) - q.zero_point) * q.scale,
    )


def _bounds_of_both(
    node: Node, range_of: _RangeOf
) -> tuple[float, float, float, float]:
    left, right = node.args[:2]
    a, b = range_of(left)
    c, d = range_of(right)
    return a, b, c, d


def _added(node: Node, range_of: _RangeOf) -> Range:
    a, b, c, d = _bounds_of_both(node, range_of)
    return Range(a + c, b + d)


def _multiplied(node: Node, range_of: _RangeOf) -> Range:
    a, b, c, d = _bounds_of_both(node, range_of)
    corners = (
        _product(a, c),
        _product(a, d),
        _product(b, c),
        _product(b, d),
    )
    low = min(corners)
    high = max(corners)
    if _quantised_value(node.args[0]) is _quantised_value(node.args[1]):
        low = max(0.0, low)  # A square is never negative.
    return Range(low, high)


def _product(a: float, b: float) -> float:
    """Multiply two ends of ranges; zero times infinity is zero."""
    return 0.0 if 0 in (a, b) else a * b


def _quantised_value(node: object) -> object:
    """Return what a dequantiser reads: the dequantisers of several users read the same codes."""
    return node.args[0] if isinstance(node, Node) and is_dequantize(node) else node


def _summed(node: Node, range_of: _RangeOf) -> Range:
    low, high = range_of(node.args[0])
    return Range(0.0 if low >= 0 else -math.inf, 0.0 if high <= 0 else math.inf)


def _no_less_than_zero(node: Node, range_of: _RangeOf) -> Range:
    low, high = range_of(node.args[0])
    return Range(max(0.0, low), max(0.0, high))


def _without_sign(node: Node, range_of: _RangeOf) -> Range:
    low, high = range_of(node.args[0])
    nearest = max(0.0, low, -high)
    farthest = max(-low, high)
    return Range(nearest, farthest)


def _larger(node: Node, range_of: _RangeOf) -> Range:
    a, b, c, d = _bounds_of_both(node, range_of)
    return Range(max(a, c), max(b, d))


def _clamped(node: Node, range_of: _RangeOf) -> Range:
    low, high = range_of(node.args[0])
    for bound, pick in zip(node.args[1:3], (max, min), strict=False):
        if isinstance(bound, (int, float)):
            low, high = pick(low, bound), pick(high, bound)
    return Range(low, high)


def _raised(node: Node, range_of: _RangeOf) -> Range:
    exponent = node.args[1]
    if not isinstance(exponent, (int, float)):
        return ANYTHING
    is_odd = exponent % 2 == 1
    if is_odd and range_of(node.args[0]).low < 0:
        return ANYTHING
    return Range(0.0, math.inf)  # The root of a negative value is no number.


#: The range of a function's values, whatever its input is.
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
#: Fewer than move values: a range from beyond a delegate's border, as behind an ``index`` on the CPU, lets int16
#: functions through which the proof then convicts, because it feeds any code at the border.
_KEEP = operators(ElementOrigin.VIEW) | named(
    "mean amax amin slice slice_copy select_copy"
)
_RULES: dict[str, Callable[[Node, _RangeOf], Range]] = {
    **dict.fromkeys(_KEEP, _same),
    **dict.fromkeys(("aten::clamp", "aten::hardtanh"), _clamped),
    QUANTIZE: _quantised,
    "quantized_decomposed::dequantize_per_tensor": _dequantised,
    "aten::add": _added,
    "aten::mul": _multiplied,
    "aten::sum": _summed,
    "aten::relu": _no_less_than_zero,
    "aten::abs": _without_sign,
    "aten::pow": _raised,
    "aten::maximum": _larger,
}
