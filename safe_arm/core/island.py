"""Islands: a conv-like node and the activation that consumes it alone, in any FX dialect.

An island is *fuseable* when its activation's clamp is implied by the quantisation of its output:
the lower bound quantises to ``qmin`` and the upper bound, if there is one, to ``qmax``. Then
``quantize(clamp(x)) == quantize(x)`` for every x, because quantisation is monotone.
Everything else is *non-fuseable*: the clamp must be computed somewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node

from safe_arm.core.notes import notes_on
from safe_arm.core.operators import VIEWS, named

CONV_LIKE = named(
    "convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear"
)
#: What a linear becomes when it is decomposed; the Arm pipeline gives these no output rescale of their own.
DECOMPOSED_LINEAR = named("addmm mm bmm")
ACTIVATIONS = named(
    "relu relu_ relu6 relu6_ hardtanh hardtanh_ clamp clamp_ clamp_min clamp_max"
)
#: Where the Arm annotators mark, in ``node.meta["custom"]``, what the backend shall lower as quantised.
MARK_KEY = "_arm_annotation_info"
QUANTIZE = "quantized_decomposed::quantize_per_tensor"
#: The quantiser of weights in a graph of ``convert_pt2e(fold_quantize=False)``.
QUANTIZE_CHANNELS = "quantized_decomposed::quantize_per_channel"
DEQUANTIZE = (
    "quantized_decomposed::dequantize_per_tensor",
    "quantized_decomposed::dequantize_per_channel",
)


def op_name(node: Node) -> str:
    """Return the schema name of a node's operator, such as ``aten::relu``; empty for anything else.

    ATen and edge overloads of one operator give the same name; control flow is ``higher_order::cond`` and the like.
    """
    if isinstance(node.target, HigherOrderOperator):
        return f"higher_order::{node.target.name()}"
    schema = getattr(node.target, "_schema", None)
    if schema is None or node.op != "call_function":
        return ""
    return schema.name


def arguments_by_name(node: Node) -> dict[str, Any]:
    """Return the arguments of an operator by the names in its schema, defaults included."""
    arguments = {}
    for index, parameter in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if index < len(node.args):
            arguments[parameter.name] = node.args[index]
        elif parameter.name in node.kwargs:
            arguments[parameter.name] = node.kwargs[parameter.name]
        elif parameter.has_default_value():
            arguments[parameter.name] = parameter.default_value
    return arguments


def is_quantize(node: Node) -> bool:
    """Tell whether a node quantises, per tensor or per channel."""
    return op_name(node) in (QUANTIZE, QUANTIZE_CHANNELS)


def is_dequantize(node: Node) -> bool:
    """Tell whether a node dequantises, per tensor or per channel."""
    return op_name(node) in DEQUANTIZE


def is_marked_quantized(node: Node) -> bool:
    """Tell whether an Arm annotator marked a node as one the backend shall lower as quantised."""
    return bool(notes_on(node).get(MARK_KEY, {}).get("quantized"))


def gives_float(node: Node) -> bool:
    """Tell whether a node's value is a tensor of floats."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


@dataclass(frozen=True)
class QParams:
    """Per-tensor quantisation parameters: ``code = clamp(round(value / scale) + zero_point, qmin, qmax)``."""

    scale: float
    zero_point: int
    qmin: int
    qmax: int
    dtype: torch.dtype

    @classmethod
    def of(cls, node: Node) -> QParams | None:
        """Return the static qparams of a per-tensor quantise or dequantise node, None if they are not static."""
        if op_name(node) not in (QUANTIZE, DEQUANTIZE[0]):
            return None
        if any(isinstance(argument, Node) for argument in node.args[1:]):
            return None
        scale, zero_point, qmin, qmax, dtype = node.args[1:6]
        return cls(float(scale), int(zero_point), int(qmin), int(qmax), dtype)  # type: ignore[arg-type]

    def code(self, value: float) -> int:
        """Return the code of one value, rounded exactly as the quantised graph rounds it."""
        quantize = torch.ops.quantized_decomposed.quantize_per_tensor.default
        qparams = self.scale, self.zero_point, self.qmin, self.qmax, self.dtype
        codes = quantize(torch.tensor([value], dtype=torch.float32), *qparams)
        return int(codes.item())

    @property
    def narrow(self) -> bool:
        """Tell whether integer saturation of the dtype alone would let codes outside [qmin, qmax] through."""
        limits = torch.iinfo(self.dtype)
        return self.qmin > limits.min or self.qmax < limits.max


@dataclass(frozen=True)
class Bounds:
    """The closed interval an activation clamps to, in real values; None where it is open."""

    low: float | None
    high: float | None

    def implied_by(self, q: QParams) -> bool:
        """Tell whether quantising with ``q`` alone gives the same codes as clamping first."""
        return self._have_codes(q, q.qmin, q.qmax)

    def implied_by_saturation(self, q: QParams) -> bool:
        """Tell whether saturating to the integer dtype, which is all a fused RESCALE does, gives the same codes."""
        limits = torch.iinfo(q.dtype)
        return self._have_codes(q, limits.min, limits.max)

    def _have_codes(
        self,
        q: QParams,
        least: int,
        greatest: int,
    ) -> bool:
        if self.low is not None and q.code(self.low) != least:
            return False
        return self.high is None or q.code(self.high) == greatest


def activation_bounds(node: Node) -> Bounds | None:
    """Return the bounds an activation node clamps to, None if the node is no activation with constant bounds."""
    name = op_name(node)
    if name not in ACTIVATIONS:
        return None
    kind = name.removeprefix("aten::").removesuffix("_")
    if kind == "relu":
        return Bounds(0.0, None)
    if kind == "relu6":
        return Bounds(0.0, 6.0)
    bounds: dict[str, float | None] = {}
    _, *arguments = arguments_by_name(node).items()
    for name, value in arguments:
        if isinstance(value, Node):
            return None
        bound = name.removesuffix("_val")  # hardtanh has min_val and max_val
        bounds[bound] = None if value is None else float(value)
    return Bounds(bounds.get("min"), bounds.get("max"))


@dataclass(frozen=True)
class Island:
    """A quantised conv-like node, the activation that alone consumes it, and that activation's quantise node."""

    core: Node
    between: tuple[Node, ...]
    activation: Node
    quantize: Node
    bounds: Bounds
    qparams: QParams

    @property
    def fuseable(self) -> bool:
        """Tell whether the activation's clamp is implied by its output quantisation."""
        return self.bounds.implied_by(self.qparams)

    @property
    def members(self) -> tuple[Node, ...]:
        """The conv-like node, what stands between, and the activation, in graph order."""
        return (self.core, *self.between, self.activation)

    @property
    def unit(self) -> tuple[Node, ...]:
        """The whole quantised unit, DQ to Q: everything that computes only for this island, in graph order."""
        unit = {self.quantize, *self.members}
        frontier = list(self.core.all_input_nodes)
        while frontier:
            node = frontier.pop()
            is_operator = node.op == "call_function"
            if node in unit or not is_operator or not set(node.users) <= unit:
                continue
            if is_dequantize(node):
                unit.add(node)
            elif op_name(node) in VIEWS and node.meta["val"].dtype.is_floating_point:
                unit.add(node)
                frontier.extend(node.all_input_nodes)
        return tuple(sorted(unit))


def island_of(activation: Node) -> Island | None:
    """Return the island that an activation node closes, None if it closes none.

    It closes one if its only user is a static per-tensor quantise and its input comes, alone and through
    nothing but pass-through ops, from a conv-like node with a dequantised input.
    """
    bounds = activation_bounds(activation)
    if bounds is None or len(activation.users) != 1:
        return None
    quantize = next(iter(activation.users))
    qparams = QParams.of(quantize) if op_name(quantize) == QUANTIZE else None
    core: object = activation.args[0]
    between: list[Node] = []
    while isinstance(core, Node) and op_name(core) in VIEWS and len(core.users) == 1:
        between.append(core)
        core = core.args[0]
    if qparams is None or not isinstance(core, Node) or len(core.users) != 1:
        return None
    if op_name(core) not in CONV_LIKE | DECOMPOSED_LINEAR:
        return None
    source = core.args[1 if op_name(core) == "aten::addmm" else 0]
    while isinstance(source, Node) and op_name(source) in VIEWS:
        source = source.args[0]  # type: ignore[assignment]
    if not isinstance(source, Node) or not is_dequantize(source):
        return None
    return Island(core, tuple(between[::-1]), activation, quantize, bounds, qparams)


def islands(graph_module: GraphModule) -> Iterator[Island]:
    """Yield every island of a graph and of its control-flow branches, in graph order."""
    yield from filter(None, map(island_of, call_functions(graph_module)))


def graph_modules(graph_module: GraphModule) -> Iterator[GraphModule]:
    """Yield a graph module and those nested in it, such as the branches of its control flow."""
    for module in graph_module.modules():
        if isinstance(module, GraphModule):
            yield module


def all_nodes(graph_module: GraphModule) -> Iterator[Node]:
    """Yield every node of a graph and of its nested graph modules, in graph order."""
    for module in graph_modules(graph_module):
        yield from module.graph.nodes


def call_functions(graph_module: GraphModule) -> Iterator[Node]:
    """Yield every operator node of a graph and of its nested graph modules, in graph order."""
    for node in all_nodes(graph_module):
        if node.op == "call_function":
            yield node
