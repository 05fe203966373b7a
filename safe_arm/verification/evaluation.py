"""Evaluate a delegate's graph eagerly, floats in double, and keep what its quantisers saw before they rounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map

from safe_arm.core.attributes import stored_value
from safe_arm.core.calls import called
from safe_arm.core.differences import largest
from safe_arm.core.errors import SafeArmError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import (
    DEQUANTIZE,
    QUANTIZE,
    QUANTIZE_CHANNELS,
    QParams,
    is_quantize,
    op_name,
)
from safe_arm.core.programs import Program, constants, placeholder_values
from safe_arm.verification.rounding import FLOAT, Arithmetic, is_float

#: Number of turns on made-up inputs after which a loop is taken for an endless one.
MOST_TURNS = 100
_TIE = 1e-6
#: Inputs or outputs of control flow: tensors and numbers.
Values = tuple[Any, ...]


class EvaluationError(SafeArmError):
    """The quantised graph itself cannot be evaluated on the inputs chosen for it."""


class EndlessLoopError(EvaluationError):
    """A loop does not end soon on the inputs chosen for it; it may on others."""


@dataclass
class Evaluation:
    """The values of one graph's nodes.

    Attributes:
        values: the value of each node; floats are doubles, but inputs are as given.
        unrounded: for each static per-tensor quantiser its result in double before rounding and saturation, in codes.
        ties_up: round the middle between two codes up, as TOSA does, not to even.
        branches_up: do so inside control flow, where the delegate's choice at a tie cannot be seen (distance.py sees it
            outside) and a loop enlarges it at each turn.
        errors: the error bound of each element of a real float on a device (rounding.py), in codes for a quantiser of
            one; None to compute no bounds.
        constants: values of nodes that do not depend on the inputs; they are not evaluated.
        slack: added to the distance from the middle between two codes within which a value may go to either, in codes.
        nan_goes_to: the value that a quantiser takes a NaN for; PyTorch and TOSA define no code for it.
        has_quantised_nan: whether a quantiser saw a NaN.
    """

    values: dict[Node, Any] = field(default_factory=dict)
    unrounded: dict[Node, Tensor] = field(default_factory=dict)
    ties_up: bool = False
    errors: dict[Node, Any] | None = None
    constants: Mapping[Node, Tensor] = field(default_factory=dict)
    slack: float = 0.0
    branches_up: bool = True
    nan_goes_to: float = math.nan
    has_quantised_nan: bool = False

    def run(self, nodes: Iterable[Node], keep: Collection[Node] | None = None) -> None:
        """Evaluate operators, in graph order, whose inputs have values.

        Args:
            nodes: the operators.
            keep: the nodes whose values are kept; others are dropped after their last user. None to keep all.

        Raises:
            EvaluationError: an operator fails on them.
        """
        pending: dict[Node, set[Node]] = {}
        with torch.no_grad():
            for node in nodes:
                if node.op == "get_attr":
                    self.values[node] = stored_value(node)
                elif node.op == "call_function":
                    if node in self.constants:
                        self.values[node] = self.constants[node]
                    else:
                        self.values[node] = self._called(node)
                        self._bound(node)
                    if keep is not None:
                        self._drop(node, keep, pending)

    def take(self, node: Node, source: Evaluation) -> None:
        """Copy a node's value, and its error bound, from another evaluation."""
        self.set_exactly(node, source.values[node])
        if source.errors and node in source.errors and self.errors is not None:
            self.errors[node] = source.errors[node]

    def set_exactly(self, node: Node, value: Tensor) -> None:
        """Set a node's value, without an error bound."""
        self.values[node] = value
        if self.errors:
            self.errors.pop(node, None)

    def _drop(
        self, node: Node, keep: Collection[Node], pending: dict[Node, set[Node]]
    ) -> None:
        """Drop the inputs of an operator that have no other user left."""
        for used in node.all_input_nodes:
            users = pending.setdefault(used, set(used.users))
            users.discard(node)
            if not users and used not in keep:
                self.values.pop(used, None)
                self.unrounded.pop(used, None)
                (self.errors or {}).pop(used, None)

    def _bound(self, node: Node) -> None:
        """Record the error bound of an operator's value."""
        errors = self.errors
        if errors is None:
            return
        if node in self.unrounded:
            if node.args[0] in errors:
                errors[node] = errors[node.args[0]] / node.args[1]  # type: ignore[index, operator]
            return
        value = self.values[node]
        call = in_double(node)
        error = Arithmetic(node, value, self.values, errors, call).error()
        if error is not None:
            errors[node] = error

    def _called(self, node: Node) -> Any:
        try:
            q = QParams.of(node) if op_name(node) == QUANTIZE else None
            if q is not None:
                return self._quantised(node, q)
            function = in_double(node, branches_up=self.branches_up)
            return called(node, self.values.__getitem__, function)
        except EvaluationError:
            raise
        except Exception as error:
            message = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise EvaluationError(
                f"{op_name(node) or node.name} cannot be evaluated eagerly: {message}"
            ) from error

    def _quantised(self, node: Node, q: QParams) -> Tensor:
        """Return the codes of a static per-tensor quantiser, and record what it rounded."""
        value: Tensor = self.values[node.args[0]]  # type: ignore[index]
        is_nan = value.isnan()
        if is_nan.any():
            self.has_quantised_nan = True
            value = value.masked_fill(is_nan, self.nan_goes_to)
        codes = self.unrounded[node] = value.double() / q.scale + q.zero_point
        if self.ties_up and value.dtype != torch.float32:  # As in _quantize.
            rounded = (codes + 0.5 + _TIE).floor()
            return rounded.clamp(q.qmin, q.qmax).to(q.dtype)
        return _quantize(value, q.scale, q.zero_point, q.qmin, q.qmax, q.dtype)


def evaluated(
    program: Program,
    state: Mapping[str, Tensor],
    inputs: Sequence[Tensor],
    *,
    ties_up: bool = False,
    branches_up: bool = True,
    nan_goes_to: float = math.nan,
) -> Evaluation:
    """Evaluate a delegate's whole graph, and keep its outputs.

    Args:
        program: the delegate's exported program, not lowered.
        state: its parameters, buffers and constants by name.
        inputs: its user inputs, in its order.
        ties_up: round ties as TOSA does, so that a delegate does not differ there.
        branches_up: do so inside control flow.
        nan_goes_to: the value that a quantiser takes a NaN for.

    Raises:
        EvaluationError: an operator fails on the inputs.
    """
    graph = program.graph
    evaluation = Evaluation(
        placeholder_values(program, state, inputs),
        errors={},
        ties_up=ties_up,
        branches_up=branches_up,
        nan_goes_to=nan_goes_to,
        constants=quantised_constants(program, state),
    )
    outputs = graph.output_node().all_input_nodes
    evaluation.run(graph.nodes, keep=frozenset(outputs))
    errors = evaluation.errors or {}
    for node in outputs:  # In a deep graph the bound outgrows the value; then the operators are looked at one by one.
        if node in errors:
            seen = evaluation.unrounded.get(node, evaluation.values[node])
            errors[node] = errors[node].clamp(max=FLOAT * largest(seen))
    return evaluation


def quantised_constants(
    program: Program, state: Mapping[str, Tensor]
) -> dict[Node, Tensor]:
    """Return the values of a graph's quantisers of constants, in float32 as passes fold them; ties go as they do there.

    Args:
        program: a delegate's exported program, not lowered.
        state: its parameters, buffers and constants by name.
    """
    values: dict[Node, Any] = {}
    for node, tensor in constants(program, state).items():
        values[node] = tensor.detach()

    def value_of(node: Node) -> Any:
        if node not in values:
            values[node] = called(node, value_of)
        return values[node]

    fixed = set(values)
    quantised = {}
    with torch.no_grad():
        for node in program.graph.nodes:
            inputs = node.all_input_nodes
            if node.op != "call_function" or not inputs or not fixed.issuperset(inputs):
                continue
            fixed.add(node)
            if is_quantize(node):
                value = attempted(value_of, node)
                if isinstance(value, Caught):
                    return {}
                quantised[node] = value
    return quantised


def has_control_flow(program: Program) -> bool:
    """Tell whether a graph branches or loops."""
    return any(str(node.target) in _CONTROL_FLOW for node in program.graph.nodes)


def in_double(node: Node, *, branches_up: bool = True) -> Callable[..., Any]:
    """Return a function that computes an operator, control flow included, with its floats in double.

    Args:
        node: the operator.
        branches_up: round ties inside control flow up, as TOSA does, not to even.
    """
    control_flow = _CONTROL_FLOW.get(str(node.target))
    if control_flow is not None:
        return wraps(control_flow)(partial(control_flow, branches_up))
    special = _SPECIAL.get(op_name(node))
    if special is not None:
        return special
    target: Callable[..., Any] = node.target  # type: ignore[assignment]

    def doubled(*args: Any, **kwargs: Any) -> Any:
        try:
            return target(*tree_map(_as_double, args), **tree_map(_as_double, kwargs))
        except RuntimeError:  # A transposed convolution of doubles refuses to have no output, one of floats does not.
            result = attempted(target, *tree_map(_as_float, args), **kwargs)
            if not isinstance(result, Tensor) or result.numel():
                raise
            return result.double()

    return doubled


def _as_double(value: object) -> object:
    if is_float(value):
        return value.double()
    return torch.float64 if value is torch.float32 else value


def _as_float(value: object) -> object:
    return value.float() if is_float(value) else value


def _quantize(
    x: Tensor, scale: float, zero: int, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    """Round to even before the zero point is added, as PyTorch does."""
    # An input of the network is float32 on the device too.
    if x.dtype == torch.float32:
        return torch.ops.quantized_decomposed.quantize_per_tensor(
            x, scale, zero, low, high, dtype
        )
    return ((x.double() / scale).round() + zero).clamp(low, high).to(dtype)


def _quantize_channels(
    x: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
) -> Tensor:
    """Quantise weights in float32, as the device is given them."""
    quantize = torch.ops.quantized_decomposed.quantize_per_channel
    return quantize(x.float(), scales, zeros, axis, low, high, dtype)


def _dequantize(codes: Tensor, scale: float, zero: int, *_: Any, **__: Any) -> Tensor:
    return (codes.double() - zero) * scale


def _dequantize_channels(
    codes: Tensor, scales: Tensor, zeros: Tensor | None, axis: int, *_: Any, **__: Any
) -> Tensor:
    shape = [-1 if dim == axis else 1 for dim in range(codes.dim())]
    offset = 0 if zeros is None else zeros.double().view(shape)
    return (codes.double() - offset) * scales.double().view(shape)


def _cond(
    ties_up: bool,
    predicate: Tensor | bool,
    if_true: GraphModule,
    if_false: GraphModule,
    operands: Values,
) -> Values:
    return _branch(if_true if bool(predicate) else if_false, operands, ties_up)


def _while_loop(
    ties_up: bool,
    condition: GraphModule,
    body: GraphModule,
    carried: Values,
    constants: Values = (),
) -> Values:
    for _ in range(MOST_TURNS):
        if not bool(_branch(condition, (*carried, *constants), ties_up)[0]):
            return carried
        carried = _branch(body, (*carried, *constants), ties_up)
    raise EndlessLoopError(f"its loop does not end within {MOST_TURNS} turns")


def _branch(module: GraphModule, operands: Values, ties_up: bool) -> Values:
    values = dict(zip(module.graph.find_nodes(op="placeholder"), operands, strict=True))
    evaluation = Evaluation(values, ties_up=ties_up, branches_up=ties_up)
    evaluation.run(module.graph.nodes)
    results = module.graph.output_node().args[0]
    if not isinstance(results, (list, tuple)):
        results = (results,)
    return tuple(evaluation.values[r] if isinstance(r, Node) else r for r in results)


_SPECIAL: dict[str, Callable[..., Any]] = {
    QUANTIZE: _quantize,
    QUANTIZE_CHANNELS: _quantize_channels,
    DEQUANTIZE[0]: _dequantize,
    DEQUANTIZE[1]: _dequantize_channels,
    # It asserts a half or bfloat16, which is in double here.
    "aten::_assert_tensor_metadata": lambda *_, **__: None,
}
_CONTROL_FLOW: dict[str, Callable[..., Values]] = {
    "cond": _cond,
    "while_loop": _while_loop,
}
