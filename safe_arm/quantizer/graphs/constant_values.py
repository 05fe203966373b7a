"""Values of a graph that depend on no input."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from safe_arm.core.attributes import stored_value
from safe_arm.core.calls import called
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import graph_modules
from safe_arm.quantizer.graphs.graph_edits import Writer, is_call, rewrite_nodes
from safe_arm.quantizer.graphs.operator_schemas import (
    is_mutable,
    written_buffers,
)

_ATEN = torch.ops.aten

#: Maximum number of elements of a value that is computed.
LARGEST = 1 << 24
_UNKNOWN = object()
#: Operators that depend on a tensor's sizes alone: what they fill with, or where it stands.
_NUMBERS: dict[Any, float] = {
    _ATEN.zeros_like.default: 0.0,
    _ATEN.new_zeros.default: 0.0,
    _ATEN.ones_like.default: 1.0,
    _ATEN.new_ones.default: 1.0,
}
_PLACES: dict[Any, int] = {
    _ATEN.full_like.default: 1,
    _ATEN.new_full.default: 2,
    _ATEN.fill.Scalar: 1,
}
#: Arithmetic with a number, which a tensor of one number leaves one of one number.
_ARITHMETIC: dict[Any, Callable[..., float]] = {
    _ATEN.add.Tensor: operator.add,
    _ATEN.sub.Tensor: operator.sub,
    _ATEN.mul.Tensor: operator.mul,
    _ATEN.div.Tensor: operator.truediv,
    _ATEN.neg.default: operator.neg,
}
#: Stands behind a tensor that is written down in ``forward``.
_DETACH = _ATEN.detach_.default


class ConstantValues:
    """Computes values that depend on no input, in their own dtype, each once.

    The buffers that the graph writes into are inputs.

    Args:
        model: the float graph.
        of_parameters: whether parameters are constants; they are inputs otherwise, as they may be trained.
    """

    def __init__(self, model: GraphModule, *, of_parameters: bool = False) -> None:
        self._values: dict[Node, Any] = {}
        self._state = written_buffers(model)
        self._of_parameters = of_parameters

    def of(self, node: object) -> Tensor | None:
        """Return the value of a node; None if it depends on an input, is no tensor or too large."""
        if not isinstance(node, Node):
            return None
        value = self._value(node)
        if isinstance(value, Tensor):
            return value
        return None

    def highest(self, number: object) -> float | None:
        """Return a number, or the highest one of a constant; None if it is not known."""
        if isinstance(number, (int, float)):
            return number
        if is_call(number, _ATEN.full.default):
            number = number.args[1]  # Its sizes may be dynamic.
            return number if isinstance(number, (int, float)) else None
        filler = filler_of(number)
        if filler is not None:
            return filler
        value = self.of(number)
        if value is None or value.is_complex() or not value.numel():
            return None
        return float(value.max())

    def are_at_most(self, number: object, bound: float) -> bool:
        """Return whether a number, or all numbers of a constant, are not above a bound."""
        highest = self.highest(number)
        return highest is not None and highest <= bound

    def _value(self, node: Node) -> Any:
        pending = [node]
        while pending:
            current = pending[-1]
            sources = [s for s in current.all_input_nodes if s not in self._values]
            if sources and _is_computed(current):
                pending += sources
                continue
            self._values[current] = self._computed(current)
            pending.pop()
        return self._values[node]

    def _computed(self, node: Node) -> Any:
        if node.op == "get_attr":
            return self._read(node)
        if not _is_computed(node):
            return _UNKNOWN
        for source in node.all_input_nodes:
            if self._values[source] is _UNKNOWN:
                return _UNKNOWN
        function = torch.detach if node.target is _DETACH else None
        with torch.no_grad():
            value = attempted(called, node, self._values.__getitem__, function)
        return _UNKNOWN if isinstance(value, Caught) else value

    def _read(self, node: Node) -> Any:
        value = stored_value(node)
        if node.target in self._state:
            return _UNKNOWN
        if isinstance(value, torch.nn.Parameter) and not self._of_parameters:
            return _UNKNOWN
        return value


class ConstantWriter(Writer):
    """Writes operators before one of a float graph, and knows which values are constant.

    Args:
        node: the operator in whose place they are written.
        values: the constants of its graph.
    """

    def __init__(self, node: Node, values: ConstantValues) -> None:
        super().__init__(node)
        self.value_of = values.of


def rewrite_with_constants(
    model: GraphModule,
    rewrite: Callable[..., bool],
    *,
    of_parameters: bool = False,
) -> None:
    """Write each operator of a graph, and of the branches of its control flow, with others.

    Args:
        model: changed in place.
        rewrite: writes one operator, and tells whether it did.
        of_parameters: whether parameters are constants.
    """
    for module in graph_modules(model):
        values = ConstantValues(module, of_parameters=of_parameters)
        rewrite_nodes(module, partial(rewrite, values=values))


def number_of(constant: Tensor | None) -> float | None:
    """Return the number that a constant has everywhere; None if it has several, or none."""
    if constant is None or constant.is_complex() or not constant.numel():
        return None
    first = constant.flatten()[0]
    return float(first) if bool((constant == first).all()) else None


def filler_of(node: object) -> float | None:
    """Return the number of which operators make a tensor of the sizes of another; None for any other.

    Arithmetic with numbers may follow, as in ``-9e15 * torch.ones_like(scores)``.
    """
    if not isinstance(node, Node):
        return None
    if node.target in _ARITHMETIC and not node.kwargs:
        return _filler_of_arithmetic(node)
    number = number_filled_in(node)
    return None if number is None else float(number)


def number_filled_in(node: Node) -> float | None:
    """Return the number of which one operator makes a tensor of the sizes of another; None for any other operator."""
    if node.target in _NUMBERS:
        return _NUMBERS[node.target]
    place = _PLACES.get(node.target)
    number = None if place is None else node.args[place]
    return number if isinstance(number, (int, float)) else None


def _filler_of_arithmetic(node: Node) -> float | None:
    numbers = []
    for operand in node.args:
        number = filler_of(operand) if isinstance(operand, Node) else operand
        if not isinstance(number, (int, float)):
            return None
        numbers.append(number)
    result = attempted(_ARITHMETIC[node.target], *numbers)
    return float(result) if isinstance(result, (int, float)) else None


def _is_computed(node: Node) -> bool:
    """Return whether an operator gives the same at each call, and has sizes that are numbers."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        return False
    if node.target is not _DETACH and is_mutable(node):
        return False
    arguments = (node.args, node.kwargs)
    for leaf in tree_leaves(arguments):
        if isinstance(leaf, torch.SymInt):
            return False
    results = node.meta.get("val")
    if isinstance(results, Tensor):
        results = [results]
    if not isinstance(results, (list, tuple)):
        return False
    for value in results:
        if not isinstance(value, Tensor):
            return False
        elements = value.numel()
        if not isinstance(elements, int) or elements > LARGEST:
            return False
    return True
