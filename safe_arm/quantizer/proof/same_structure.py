"""Check that a converted graph is the calibrated graph with its values rounded, and nothing else.

Without its quantise and dequantise operators it has the operators, arguments and outputs of the float graph, and its
constants are those of the float graph up to a code. Then every difference between the two is made by their quantisers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves, tree_map

from safe_arm.core.attributes import stored_value
from safe_arm.core.calls import called
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import QParams, is_dequantize, op_name
from safe_arm.core.operators import named
from safe_arm.quantizer.graphs.graph_edits import static_sizes, tensor_of
from safe_arm.quantizer.graphs.mask_bounds import is_bound, is_far_number

_QUANTISES = ("quantized_decomposed::quantize", "torchao::quantize")
_DEQUANTISES = ("quantized_decomposed::dequantize", "torchao::dequantize")
_OWN_QUANTISERS = tuple(each.replace("::", ".") for each in _QUANTISES + _DEQUANTISES)
#: Operators that read the size of a tensor and not its values; conversion folds them.
_LIKE = named("full_like new_full new_ones new_zeros ones_like zeros_like")
#: Codes that a constant may be off: rounding takes half a code, the end of a range another half.
_CODES = 1.0
#: The share of a constant's values that an observer of histograms may cut off at the ends of its range.
_CUT_OFF = 0.1
#: The rounding of a dequantised constant in float32, relative to the largest value.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class _Reference:
    """Another node among the arguments of an operator, by its name."""

    name: str


@dataclass(frozen=True)
class _Operator:
    """An operator; its arguments are the pair of positional ones and keywords."""

    target: object
    arguments: Any


class Structure:
    """The operators and constants of a float graph, to compare a converted graph with.

    It holds the graph's constants themselves, no copies.
    """

    def __init__(self, graph_module: GraphModule, state: Collection[str] = ()) -> None:
        """Describe a float graph.

        Args:
            graph_module: the graph that is going to be calibrated.
            state: names of the buffers that it writes into, whose values are not constant.
        """
        self._operators: dict[str, _Operator] = {}
        self._constants: dict[str, Tensor] = {}
        for node in graph_module.graph.nodes:
            value = None
            if node.op == "get_attr" and node.target not in state:
                value = stored_value(node)
            elif op_name(node) in _LIKE:
                value = _filled(node)
            if isinstance(value, Tensor):
                self._constants[node.name] = value
            if node.op in ("call_function", "output"):
                arguments = tree_map(_referred, (node.args, node.kwargs))
                self._operators[node.name] = _Operator(node.target, arguments)

    def difference(self, converted: GraphModule) -> str:
        """Say in what a converted graph is another graph; empty if it is the same one."""
        nodes = {node.name: node for node in converted.graph.nodes}
        live = self._live()
        for name, operator in self._operators.items():
            node = nodes.get(name)
            if operator.target == "output":
                node = converted.graph.output_node()
            if node is None or node.op == "get_attr":
                # The operators that read a constant are compared by its value.
                if name in live and self._constant(name) is None:
                    return f"{name} is lost"
                continue
            difference = self._of_operator(node, operator)
            if difference:
                return difference
        return ""

    def _live(self) -> set[str]:
        """Return the names of the operators that lead to an output, or to one that writes."""
        live: set[str] = set()
        waiting = []
        for name, operator in self._operators.items():
            if _is_end(operator):
                waiting.append(name)
        while waiting:
            name = waiting.pop()
            if name not in live and name in self._operators:
                live.add(name)
                waiting += _references(self._operators[name])
        return live

    def _of_operator(self, node: Node, operator: _Operator) -> str:
        if node.target != operator.target:
            shown = getattr(operator.target, "_name", None) or str(operator.target)
            return f"{node.name} is {op_name(node) or node.target} instead of {shown}"
        actual = (node.args, node.kwargs)
        return self._of_arguments(node.name, actual, operator.arguments)

    def _of_arguments(
        self,
        name: str,
        actual: Any,
        expected: Any,
    ) -> str:
        """Compare arguments, element by element."""
        if isinstance(expected, _Reference):
            return self._of_reference(name, actual, expected)
        if isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
            if len(actual) != len(expected):
                return f"{name} has {len(actual)} arguments instead of {len(expected)}"
            keys: Any = range(len(expected))
        elif isinstance(expected, dict) and isinstance(actual, dict):
            if actual.keys() != expected.keys():
                return f"{name} has other arguments"
            keys = expected
        else:
            return _of_literal(name, actual, expected)
        for key in keys:
            difference = self._of_arguments(name, actual[key], expected[key])
            if difference:
                return difference
        return ""

    def _of_reference(
        self,
        name: str,
        node: object,
        expected: _Reference,
    ) -> str:
        if not isinstance(node, Node):
            return f"{name} takes {node!r} instead of {expected.name}"
        source = _source(node)
        difference = _other_domain(node)
        if difference:
            return difference
        wanted = self._source(expected.name)
        constant = None
        if source.op == "get_attr":
            constant = self._constant(expected.name)
        is_itself = source is node and source.name == wanted
        if constant is not None and not is_itself:
            return _of_constant(name, node, expected.name, constant)
        if source.name == wanted:
            return ""
        return f"{name} reads {source.name} instead of {wanted}"

    def _source(self, name: str) -> str:
        """Return the name of the value that a quantiser of the float graph itself is given, or the name."""
        while name in self._operators:
            operator = self._operators[name]
            if not str(operator.target).startswith(_OWN_QUANTISERS):
                break
            name, *_ = _references(operator)
        return name

    def _constant(self, name: str) -> Tensor | None:
        """Return the value of a constant, or of an operator that reads constants alone; None for anything else."""
        if name in self._constants:
            return self._constants[name]
        operator = self._operators.get(name)
        if operator is None or not callable(operator.target):
            return None
        if torch.Tag.nondeterministic_seeded in getattr(operator.target, "tags", ()):
            return None
        values = {}
        for source in _references(operator):
            values[source] = self._constant(source)
            if values[source] is None:
                return None

        def value_of(argument: object) -> object:
            return (
                values[argument.name] if isinstance(argument, _Reference) else argument
            )

        args, kwargs = tree_map(value_of, operator.arguments)
        value = attempted(operator.target, *args, **kwargs)
        if not isinstance(value, Tensor):
            return None
        self._constants[name] = value
        return value


def _of_literal(name: str, actual: object, expected: object) -> str:
    """Compare an argument that is neither a node nor a container."""
    # NaN is not itself.
    same = attempted(lambda: bool(actual == expected) or actual != actual)
    if isinstance(same, Caught) or same:
        return ""
    return f"{name} takes {actual!r} instead of {expected!r}"


def _of_constant(
    name: str,
    node: Node,
    expected: str,
    float_value: Tensor,
) -> str:
    """Compare a constant as an operator reads it with that of the float graph."""
    value = attempted(_evaluated, node)
    if not isinstance(value, Tensor):
        return ""
    if value.shape != float_value.shape:
        return f"{name} reads a constant of shape {tuple(value.shape)} instead of {tuple(float_value.shape)}"
    if is_bound(float_value):
        same = _is_saturated(node, value, float_value)
    elif float_value.is_floating_point():
        same = _is_rounded(value, float_value.detach(), _step(node, value))
        if not same and is_far_number(float_value):
            same = _is_saturated(node, value, float_value)
    else:
        same = torch.equal(value, float_value)
    return "" if same else f"{name} reads another constant than {expected}"


def _is_end(operator: _Operator) -> bool:
    """Return whether an operator is the output, or writes into a tensor."""
    schema = getattr(operator.target, "_schema", None)
    return operator.target == "output" or (schema is not None and schema.is_mutable)


def _filled(node: Node) -> object:
    """Return the constant that a like-operator gives; None for dynamic sizes."""
    like = tensor_of(node.args[0])
    if like is None or static_sizes(node.args[0]) is None:
        return None
    arguments = (*node.args[1:], *node.kwargs.values())
    if any(isinstance(argument, Node) for argument in arguments):
        return None
    operator: Any = node.target
    empty = torch.empty(like.shape, dtype=like.dtype)
    return attempted(operator, empty, *node.args[1:], **node.kwargs)


def _referred(argument: object) -> object:
    return _Reference(argument.name) if isinstance(argument, Node) else argument


def _references(operator: _Operator) -> list[str]:
    """Return the names of the nodes that an operator reads."""
    names = []
    for leaf in tree_leaves(operator.arguments):
        if isinstance(leaf, _Reference):
            names.append(leaf.name)
    return names


def _is_quantiser(node: Node) -> bool:
    return op_name(node).startswith(_QUANTISES + _DEQUANTISES)


def _source(node: Node) -> Node:
    """Return the value that a node gives quantised, or dequantised, or itself."""
    while _is_quantiser(node) and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def _other_domain(node: Node) -> str:
    """Say which value is dequantised in another domain than it was quantised in; empty if none is."""
    while _is_quantiser(node) and isinstance(node.args[0], Node):
        before = node.args[0]
        dequantises = op_name(node).startswith(_DEQUANTISES)
        quantised = op_name(before).startswith(_QUANTISES)
        if dequantises and quantised and node.args[1:6] != before.args[1:6]:
            return f"{node.name} dequantises {before.name} with other qparams"
        node = before
    return ""


def _evaluated(node: Node) -> Any:
    """Return the value of a constant behind its quantisers."""
    if node.op == "get_attr":
        return stored_value(node).detach()
    return called(node, _evaluated)


def _step(node: Node, value: Tensor) -> Tensor:
    """Return the size of a code of a dequantised constant, for each element; 0 if it is not quantised."""
    if not is_dequantize(node):
        return torch.zeros((), dtype=torch.float64)
    scale: Any = node.args[1]
    if isinstance(scale, Node):
        scale = attempted(stored_value, scale)
    if not isinstance(scale, (float, Tensor)):
        return torch.full((), torch.inf, dtype=torch.float64)
    if isinstance(scale, float) or scale.numel() == 1:
        return torch.as_tensor(float(scale), dtype=torch.float64)
    axis = node.args[3]
    assert isinstance(axis, int)
    shape = [1] * value.dim()
    shape[axis] = -1
    return scale.detach().double().view(shape)


def _is_saturated(node: Node, value: Tensor, bound: Tensor) -> bool:
    """Return whether a bound beyond all values is the ends of a domain."""
    domain = QParams.of(node) if is_dequantize(node) else None
    if domain is None:
        return torch.equal(value, bound)
    ends = torch.tensor([domain.qmin, domain.qmax], dtype=torch.float64)
    lowest, highest = ((ends - domain.zero_point) * domain.scale).to(value.dtype)
    expected = highest.where(bound > 0, lowest)
    slack = _ROUNDING * float(expected.abs().max())
    return bool(((value - expected).abs() <= slack).all())


def _is_rounded(value: Tensor, expected: Tensor, step: Tensor) -> bool:
    """Return whether a constant is another one in steps, but for values beyond the ends of its range."""
    if not expected.numel():
        return True
    low, high = torch.aminmax(expected)
    slack = _ROUNDING * max(abs(float(low)), abs(float(high)))
    off = (value - expected).abs_()
    if bool((off <= _CODES * step.to(off.dtype) + slack).all()):
        return True
    finite = expected.isfinite()
    slack = _ROUNDING * float(expected.abs().where(finite, 0.0).max())
    beyond = (off > _CODES * step.to(off.dtype) + slack) & finite
    at_ends = (value == value.max()) | (value == value.min())
    if bool((beyond & ~at_ends).any()):
        return False
    return float(beyond.double().mean()) <= _CUT_OFF
