"""A number that a value is compared with is rounded so that every code compares as the value it stands for.

``x > 0.7`` is false of the codes up to 0.7, and true of the others. Rounded to the nearest code, which may stand for
0.72, it is false of that one too. A number beyond all values, such as that of ``x > 1e4``, has the last code and does
not widen the domain of the values. Where the last code would decide otherwise, as in ``x >= 1e4``, ``>``
takes the place of ``>=``, and ``<=`` that of ``<``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.attributes import attribute
from safe_arm.quantizer.graphs.graph_edits import (
    add_constant,
    add_operator,
    replace_node,
    stored_tensor,
    tensor_of,
)
from safe_arm.quantizer.graphs.stand_ins import (
    Observer,
    Observers,
    StandIn,
    has_one_scale,
    shown,
)

_ATEN = torch.ops.aten
_QUANTISED = torch.ops.quantized_decomposed
#: Comparisons that are decided at the code below their second argument, and those decided at the code above.
_BELOW = (_ATEN.gt.Tensor, _ATEN.le.Tensor)
_ABOVE = (_ATEN.ge.Tensor, _ATEN.lt.Tensor)
#: Each comparison, and the one that decides otherwise where both arguments are equal.
_OTHERWISE: dict[Any, Any] = {
    _ATEN.gt.Tensor: _ATEN.ge.Tensor,
    _ATEN.ge.Tensor: _ATEN.gt.Tensor,
    _ATEN.lt.Tensor: _ATEN.le.Tensor,
    _ATEN.le.Tensor: _ATEN.lt.Tensor,
}
#: Share of a step by which a number may miss a code and have it: scales are rounded.
_SLACK = 1e-3


class Threshold(StandIn):
    """Rounds a constant down or up to a code once its domain is known.

    Args:
        observer: the observer of the constant.
        is_below: the constant is rounded down.
        is_shown: the domain is to have a code for the constant.
    """

    def __init__(
        self, observer: Observer, *, is_below: bool, is_shown: bool = True
    ) -> None:
        super().__init__(observer)
        self.is_below = is_below
        self.is_shown = is_shown

    def forward(self, x: Tensor) -> Tensor:
        """Show a value of any shape to the observer; return it, rounded where the observer rounds."""
        if not self.is_shown and not hasattr(self.observer, "fake_quant_enabled"):
            return x
        result = shown(self.observer, x)
        if hasattr(self.observer, "fake_quant_enabled") and result is not x:
            return self.rounded(x, float(self.observer.scale))
        return result

    def rounded(self, value: Tensor, step: float) -> Tensor:
        """Return the values of codes that are next to some values.

        Args:
            value: the values, of any shape.
            step: the step of their domain.
        """
        steps = value.double() / step
        nearest = steps.round()
        beside = steps.floor() if self.is_below else steps.ceil()
        is_at_code = (steps - nearest).abs() < _SLACK
        return (torch.where(is_at_code, nearest, beside) * step).to(value.dtype)

    def convert(self, model: GraphModule, node: Node) -> None:
        """Quantise the rounded constant in a graph that torchao is converting.

        Args:
            model: the graph; the user's constant stays as it is.
            node: the call of this module.
        """
        source = node.all_input_nodes[0]
        step, zero_point = map(float, self.calculate_qparams())
        domain = (step, int(zero_point), self.quant_min, self.quant_max, self.dtype)
        rounded = self.rounded(attribute(model, source.target), step)
        with model.graph.inserting_before(node):
            name = f"threshold_{node.name}"
            constant = add_constant(model, name, rounded, tensor_of(source))
            codes = add_operator(
                _QUANTISED.quantize_per_tensor.default, constant, *domain
            )
            value = add_operator(
                _QUANTISED.dequantize_per_tensor.default, codes, *domain
            )
        if self._is_beyond(rounded, step, int(zero_point)):
            for reader in list(node.users):
                reader.target = _OTHERWISE[reader.target]
        replace_node(node, value)

    def _is_beyond(self, rounded: Tensor, step: float, zero_point: int) -> bool:
        """Tell whether a number has no code, and the last one, which it gets, decides otherwise."""
        codes = rounded / step + zero_point
        if self.is_below:
            return bool((codes < self.quant_min - 0.5).all())
        return bool((codes > self.quant_max + 0.5).all())


def round_thresholds(observers: Observers) -> None:
    """Let constants that values are compared with be rounded to the code that decides as they do.

    Args:
        observers: the observer of each annotated place; changed in place.
    """
    for place, observer in observers.items():
        if not isinstance(place, tuple) or not has_one_scale(observer):
            continue
        if isinstance(observer, Threshold):
            continue
        constant, reader = place
        if constant.op != "get_attr":
            continue
        is_first = reader.args[0] is constant
        if reader.target in _BELOW:
            is_below = not is_first
        elif reader.target in _ABOVE:
            is_below = is_first
        else:
            continue
        compared = observers.get((reader.all_input_nodes[is_first], reader))
        is_shared = compared is not None and _domain(compared) is _domain(observer)
        is_hidden = _is_outward(constant, is_below) or _is_number(constant)
        is_shown = not is_shared or not is_hidden
        observers[place] = Threshold(observer, is_below=is_below, is_shown=is_shown)


def _domain(observer: Observer) -> Observer:
    """Return the observer in whose place others stand."""
    while isinstance(observer, StandIn):
        observer = observer.observer
    return observer


def _is_number(constant: Node) -> bool:
    """Tell whether all values are compared with one number."""
    value = stored_tensor(constant)
    return value is not None and value.numel() == 1


def _is_outward(constant: Node, is_below: bool) -> bool:
    """Return whether the last code decides as a constant that is beyond all codes does.

    The largest code is not greater than a positive number, and the least not less than a negative one.
    """
    value = stored_tensor(constant)
    if value is None:
        return False
    return bool((value >= 0 if is_below else value <= 0).all())
