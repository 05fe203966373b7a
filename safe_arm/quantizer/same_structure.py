"""A converted graph is the calibrated one with its values rounded, and nothing else.

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
from torch.utils._pytree import tree_map

from safe_arm.core.attributes import attribute
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import is_dequantize, op_name

_QUANTISES = ("quantized_decomposed::quantize", "torchao::quantize")
_DEQUANTISES = ("quantized_decomposed::dequantize", "torchao::dequantize")
#: Operators that read the size of a tensor, and not what it holds; conversion folds them.
_LIKE = frozenset(
    getattr(torch.ops.aten, name).default
    for name in (
        "full_like",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones_like",
        "zeros_like",
    )
)
#: Codes that a constant may be off: half of one is rounding, another half is cut off at the end of a range.
_CODES = 1.0
#: The share of a constant's values that an observer of histograms may cut off at the ends of its range.
_CUT_OFF = 0.1
#: What float32 rounds of a dequantised constant, relative to the largest.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class _Reference:
    """Another node among the arguments of an operator: an operator or input by name, a constant by its value."""

    name: str


@dataclass(frozen=True)
class _Operator:
    target: object
    args: Any
    kwargs: Any


class Structure:
    """What a float graph is made of, kept to be held against what conversion makes of the graph.

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
            if node.op == "get_attr" and node.target not in state:
                value = attribute(graph_module, node.target)
                if isinstance(value, Tensor):
                    self._constants[node.name] = value
            elif node.target in _LIKE and (value := _filled(node)) is not None:
                self._constants[node.name] = value
            if node.op in ("call_function", "output"):
                args, kwargs = tree_map(_referred, (node.args, node.kwargs))
                self._operators[node.name] = _Operator(node.target, args, kwargs)

    def difference(self, converted: GraphModule) -> str:
        """Say in what a converted graph is another graph; empty if it is the same one."""
        nodes = {node.name: node for node in converted.graph.nodes}
        live = self._live()
        for name, operator in self._operators.items():
            if operator.target == "output":
                nodes[name] = converted.graph.output_node()
            if name not in nodes or nodes[name].op == "get_attr":
                if name in live and self._constant(name) is None:
                    return f"{name} is lost"
                continue  # Its readers are held against its value, where it is a constant.
            told = self._of_operator(nodes[name], operator)
            if told:
                return told
        return ""

    def _live(self) -> set[str]:
        """Return the names of the operators that lead to an output, or to one that writes."""
        live: set[str] = set()
        waiting = [
            name for name, operator in self._operators.items() if _is_end(operator)
        ]
        while waiting:
            name = waiting.pop()
            if name in live or name not in self._operators:
                continue
            live.add(name)
            operator = self._operators[name]
            _references((operator.args, operator.kwargs), waiting)
        return live

    def _of_operator(self, node: Node, operator: _Operator) -> str:
        if node.target != operator.target:
            return f"{node.name} is {op_name(node) or node.target} instead of {_shown(operator.target)}"
        args, kwargs = tree_map(_placed, (node.args, node.kwargs))
        return self._of_arguments(node.name, args, operator.args) or self._of_arguments(
            node.name, kwargs, operator.kwargs
        )

    def _of_arguments(self, name: str, given: Any, wanted: Any) -> str:
        """Compare arguments, element by element."""
        if isinstance(wanted, _Reference):
            return self._of_reference(name, given, wanted)
        if isinstance(wanted, (list, tuple)) and isinstance(given, (list, tuple)):
            if len(given) != len(wanted):
                return f"{name} has {len(given)} arguments instead of {len(wanted)}"
            told = (
                self._of_arguments(name, *pair)
                for pair in zip(given, wanted, strict=True)
            )
            return next(filter(None, told), "")
        if isinstance(wanted, dict) and isinstance(given, dict):
            if given.keys() != wanted.keys():
                return f"{name} has other arguments"
            return next(
                filter(
                    None,
                    (
                        self._of_arguments(name, given[key], wanted[key])
                        for key in wanted
                    ),
                ),
                "",
            )
        same = attempted(
            lambda: bool(given == wanted) or given != given
        )  # NaN is not itself
        return (
            ""
            if isinstance(same, Caught) or same
            else f"{name} takes {given!r} instead of {wanted!r}"
        )

    def _of_reference(self, name: str, given: object, wanted: _Reference) -> str:
        if not isinstance(given, _Place):
            return f"{name} takes {given!r} instead of {wanted.name}"
        source = _source(given.node)
        told = _other_domain(given.node)
        if told:
            return told
        constant = self._constant(wanted.name) if source.op == "get_attr" else None
        if constant is not None:
            return self._of_constant(name, given.node, source, wanted, constant)
        return (
            ""
            if source.name == wanted.name
            else f"{name} reads {source.name} instead of {wanted.name}"
        )

    def _constant(self, name: str) -> Tensor | None:
        """Return the value of a constant, or of an operator that reads constants alone; None for anything else."""
        if name in self._constants:
            return self._constants[name]
        operator = self._operators.get(name)
        if operator is None or not callable(operator.target):
            return None
        found: list[str] = []
        _references((operator.args, operator.kwargs), found)
        values = {each: self._constant(each) for each in found}
        if torch.Tag.nondeterministic_seeded in getattr(operator.target, "tags", ()):
            return None
        if any(value is None for value in values.values()):
            return None
        args, kwargs = tree_map(
            lambda each: values[each.name] if isinstance(each, _Reference) else each,
            (operator.args, operator.kwargs),
        )
        value = attempted(operator.target, *args, **kwargs)
        if isinstance(value, Tensor):
            self._constants[name] = value
        return value if isinstance(value, Tensor) else None

    def _of_constant(
        self,
        name: str,
        node: Node,
        source: Node,
        wanted: _Reference,
        float_value: Tensor,
    ) -> str:
        if source.name == wanted.name and source is node:
            return ""
        value = _value(node)
        if value is None:
            return ""
        if value.shape != float_value.shape:
            return f"{name} reads a constant of shape {tuple(value.shape)} instead of {tuple(float_value.shape)}"
        if not float_value.is_floating_point():
            return (
                ""
                if torch.equal(value, float_value)
                else f"{name} reads another constant than {wanted.name}"
            )
        same = _is_rounded(value, float_value.detach(), _step(node, value))
        return "" if same else f"{name} reads another constant than {wanted.name}"


@dataclass(frozen=True)
class _Place:
    """A node among the arguments of an operator of the converted graph."""

    node: Node


def _is_end(operator: _Operator) -> bool:
    """Tell the output, and an operator that writes into a tensor."""
    schema = getattr(operator.target, "_schema", None)
    return operator.target == "output" or (schema is not None and schema.is_mutable)


def _filled(node: Node) -> Tensor | None:
    """Return what an operator fills a tensor with that is as large as another one; None for dynamic sizes."""
    source = node.args[0]
    like = source.meta.get("val") if isinstance(source, Node) else None
    if not isinstance(like, Tensor) or not all(
        isinstance(size, int) for size in like.shape
    ):
        return None
    if any(isinstance(each, Node) for each in (*node.args[1:], *node.kwargs.values())):
        return None
    operator: Any = node.target
    empty = torch.empty(like.shape, dtype=like.dtype)
    value = attempted(operator, empty, *node.args[1:], **node.kwargs)
    return value if isinstance(value, Tensor) else None


def _referred(argument: object) -> object:
    return _Reference(argument.name) if isinstance(argument, Node) else argument


def _placed(argument: object) -> object:
    return _Place(argument) if isinstance(argument, Node) else argument


def _references(arguments: Any, found: list[str]) -> None:
    if isinstance(arguments, _Reference):
        found.append(arguments.name)
    elif isinstance(arguments, (list, tuple)):
        for each in arguments:
            _references(each, found)
    elif isinstance(arguments, dict):
        _references(list(arguments.values()), found)


def _is_quantiser(node: Node) -> bool:
    return node.op == "call_function" and op_name(node).startswith(
        _QUANTISES + _DEQUANTISES
    )


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
        if (
            dequantises
            and op_name(before).startswith(_QUANTISES)
            and node.args[1:6] != before.args[1:6]
        ):
            return f"{node.name} dequantises {before.name} with other qparams"
        node = before
    return ""


def _value(node: Node) -> Tensor | None:
    """Return the value of a constant as operators read it; None if it cannot be computed."""
    chain = [node]
    while _is_quantiser(chain[-1]) and isinstance(chain[-1].args[0], Node):
        chain.append(chain[-1].args[0])
    owner = node.graph.owning_module
    value = attempted(attribute, owner, chain.pop().target)
    for each in reversed(chain):
        if isinstance(value, Caught):
            return None
        args = [
            attribute(owner, given.target) if isinstance(given, Node) else given
            for given in each.args[1:]
        ]
        value = attempted(each.target, value.detach(), *args, **each.kwargs)  # type: ignore[arg-type]
    return value.detach() if isinstance(value, Tensor) else None


def _step(node: Node, value: Tensor) -> Tensor:
    """Return the size of a code of a dequantised constant, for each element; 0 if it is not quantised."""
    if not is_dequantize(node):
        return torch.zeros((), dtype=torch.float64)
    scale: Any = node.args[1]
    if isinstance(scale, Node):
        scale = attempted(attribute, node.graph.owning_module, scale.target)
    if not isinstance(scale, (float, Tensor)):
        return torch.full((), torch.inf, dtype=torch.float64)
    if isinstance(scale, float) or scale.numel() == 1:
        return torch.as_tensor(float(scale), dtype=torch.float64)
    axis = node.args[3]
    assert isinstance(axis, int)
    shape = [1] * value.dim()
    shape[axis] = -1
    return scale.detach().double().view(shape)


def _is_rounded(value: Tensor, wanted: Tensor, step: Tensor) -> bool:
    """Tell whether a constant is another one in steps, but for what lies beyond the ends of its range."""
    if not wanted.numel():
        return True
    low, high = torch.aminmax(wanted)
    slack = _ROUNDING * max(abs(float(low)), abs(float(high)))
    off = (value - wanted).abs_()
    if bool((off <= _CODES * step.to(off.dtype) + slack).all()):
        return True
    finite = wanted.isfinite()
    slack = _ROUNDING * float(wanted.abs().where(finite, 0.0).max())
    beyond = (off > _CODES * step.to(off.dtype) + slack) & finite
    at_ends = (value == value.max()) | (value == value.min())
    return (
        bool((beyond & ~at_ends).sum() == 0)
        and float(beyond.double().mean()) <= _CUT_OFF
    )


def _shown(target: object) -> str:
    return getattr(target, "_name", None) or str(target)
