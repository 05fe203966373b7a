"""Evaluate a delegate's graph eagerly, floats in double, and keep what its quantisers saw before they rounded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map

from safe_arm.core.errors import SafeArmError
from safe_arm.core.island import DEQUANTIZE, QUANTIZE, QParams, is_dequantize, op_name


class EvaluationError(SafeArmError):
    """The quantised graph itself cannot be evaluated on the inputs chosen for it."""


@dataclass
class Evaluation:
    """The values of one graph's nodes.

    Attributes:
        values: what each node evaluated to; floats are doubles, but inputs are as given.
        unrounded: for each static per-tensor quantiser its result in double before rounding and saturation, in codes.
    """

    values: dict[Node, Any] = field(default_factory=dict)
    unrounded: dict[Node, Tensor] = field(default_factory=dict)

    def run(self, nodes: Iterable[Node], keep: Collection[Node] | None = None) -> None:
        """Evaluate operators, in graph order, whose inputs have values.

        Args:
            nodes: the operators.
            keep: whose values are wanted; others are dropped when their last user has them. None for all.

        Raises:
            EvaluationError: an operator fails on them.
        """
        left: dict[Node, set[Node]] = {}
        with torch.no_grad():
            for node in nodes:
                if node.op == "get_attr":
                    self.values[node] = _attribute(node)
                elif node.op == "call_function":
                    self.values[node] = self._called(node)
                    if keep is not None:
                        self._drop(node, keep, left)

    def _drop(self, node: Node, keep: Collection[Node], left: dict[Node, set[Node]]) -> None:
        """Forget the inputs of an operator that it was the last to use."""
        for used in node.all_input_nodes:
            pending = left.setdefault(used, set(used.users))
            pending.discard(node)
            if not pending and used not in keep:
                self.values.pop(used, None)
                self.unrounded.pop(used, None)

    def _called(self, node: Node) -> Any:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self.values.__getitem__)
        q = QParams.of(node)
        try:
            if op_name(node) == QUANTIZE and q is not None:
                self.unrounded[node] = args[0].double() / q.scale + q.zero_point
                return _rounded(args[0].double() / q.scale, q)
            if is_dequantize(node) and not any(isinstance(a, Tensor) for a in args[1:]):
                return (args[0].double() - args[2]) * args[1]
            if op_name(node) == DEQUANTIZE[1]:
                return _dequantized_per_channel(*args[:4])
            if op_name(node) == "aten::convolution" and _is_depthwise(*args):
                return _depthwise(*tree_map(_in_double, args[:6]))
            return _applied(node.target, args, kwargs)
        except Exception as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise EvaluationError(f"{op_name(node) or node.name} cannot be evaluated eagerly: {said}") from error


def evaluated(program: Any, state: Mapping[str, Tensor], inputs: Sequence[Tensor]) -> Evaluation:
    """Evaluate all of a delegate's graph, and keep its outputs.

    Args:
        program: the delegate's exported program, not lowered.
        state: its parameters, buffers and constants by name.
        inputs: its user inputs, in its order.

    Raises:
        EvaluationError: an operator fails on the inputs.
    """
    graph = program.graph_module.graph
    evaluation = Evaluation(placed(program, state, inputs))
    evaluation.run(graph.nodes, keep=frozenset(program.graph_module.graph.output_node().all_input_nodes))
    return evaluation


def placed(program: Any, state: Mapping[str, Tensor], inputs: Sequence[Tensor]) -> dict[Node, Any]:
    """Return the values of a program's placeholders."""
    signature = program.graph_signature
    held = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    user = iter(inputs)
    placeholders = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    return {node: state[held[node.name]].detach() if node.name in held else next(user) for node in placeholders}


def _rounded(steps: Tensor, q: QParams) -> Tensor:
    """Round to even before the zero point is added, as PyTorch does."""
    return (steps.round() + q.zero_point).clamp(q.qmin, q.qmax).to(q.dtype)


def _dequantized_per_channel(codes: Tensor, scales: Tensor, zeros: Tensor | None, axis: int) -> Tensor:
    shape = [-1 if dim == axis else 1 for dim in range(codes.dim())]
    offset = 0 if zeros is None else zeros.double().view(shape)
    return (codes.double() - offset) * scales.double().view(shape)


def _is_depthwise(x: Tensor, weight: Tensor, *rest: Any) -> bool:
    transposed, groups = rest[4], rest[6]
    return x.dim() == 4 and not transposed and groups == x.shape[1] > 1 and weight.shape[1] == 1


def _depthwise(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], padding: list[int], dilation: list[int]
) -> Tensor:
    """Convolve each channel alone, tap by tap; in double torch would make a matrix product of every channel."""
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = weight.shape[2:], stride, padding, dilation
    x = torch.nn.functional.pad(x, (pw, pw, ph, ph)).repeat_interleave(weight.shape[0] // x.shape[1], 1)
    height, width = (x.shape[2] - dh * (kh - 1) - 1) // sh + 1, (x.shape[3] - dw * (kw - 1) - 1) // sw + 1
    sums = x.new_zeros((x.shape[0], x.shape[1], height, width))
    for i in range(kh):
        for j in range(kw):
            rows, columns = slice(i * dh, i * dh + (height - 1) * sh + 1, sh), slice(j * dw, None, sw)
            sums += x[:, :, rows, columns][..., :width] * weight[:, 0, i, j].view(1, -1, 1, 1)
    return sums if bias is None else sums + bias.view(1, -1, 1, 1)


def _applied(target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if any(isinstance(a, GraphModule) for a in args):
        return _controlled(str(target), args)
    return target(*tree_map(_in_double, args), **tree_map(_in_double, kwargs))


def _in_double(value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.double()
    return torch.float64 if value is torch.float32 else value


def _controlled(name: str, args: Any) -> Any:
    """Run control flow: the branches are graphs of the same kind."""
    if name == "cond":
        predicate, if_true, if_false, operands = args
        return _branch(if_true if bool(predicate) else if_false, operands)
    if name == "while_loop":
        condition, body, carried, constants = args
        while bool(_branch(condition, (*carried, *constants))[0]):
            carried = _branch(body, (*carried, *constants))
        return carried
    raise NotImplementedError(f"the control flow operator {name}")


def _branch(module: GraphModule, operands: Sequence[Any]) -> tuple[Any, ...]:
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    evaluation = Evaluation(dict(zip(placeholders, operands, strict=True)))
    evaluation.run(module.graph.nodes)
    results = module.graph.output_node().args[0]
    results = results if isinstance(results, (list, tuple)) else (results,)
    return tuple(evaluation.values[r] if isinstance(r, Node) else r for r in results)


def _attribute(node: Node) -> Any:
    value: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value
