"""Cut a delegate's program down in space, so that one too large to verify can be verified on smaller inputs.

Its operators have to be local in space: a value depends on a window around it, in the same way everywhere.
"""

from __future__ import annotations

import copy
import operator
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.extraction import with_graph
from safe_arm.core.calls import called, example_value
from safe_arm.core.errors import SafeArmError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import QUANTIZE, is_dequantize, op_name
from safe_arm.core.macs import macs
from safe_arm.core.programs import constant_placeholders
from safe_arm.verification.concrete_sizes import is_dynamic

#: Pixels of a node for each pixel of the largest input, down and across.
Rate = tuple[Fraction, Fraction]

_PIXELWISE = frozenset(
    (
        QUANTIZE,
        "dim_order_ops::_to_dim_order_copy",
        "aten::clone",
        "aten::constant_pad_nd",
    )
)
_POOLS = frozenset(
    ("aten::avg_pool2d", "aten::max_pool2d", "aten::max_pool2d_with_indices")
)
_RESIZES = frozenset(("aten::upsample_nearest2d", "aten::upsample_bilinear2d"))
#: Operators that read a window around each place or change the size.
_WINDOWED = frozenset(("aten::convolution", *_POOLS, *_RESIZES))


class _UncroppableError(SafeArmError):
    """A graph that computes something else on smaller inputs."""


@dataclass(frozen=True)
class Crop:
    """A program on smaller inputs.

    Attributes:
        program: the exported program, sharing the tensors of the whole one; None if there is none.
        size: height and width of its largest input; empty if there is none.
        reason: why there is none; if there is, what a report says of it.
    """

    program: ExportedProgram | None
    size: str = ""
    reason: str = ""


def cropped(program: ExportedProgram, budget: int) -> Crop:
    """Return the largest crop of a delegate's program that costs no more than a budget.

    The rows and columns that strides leave over at the borders are left over in the crop too. The whole window of each
    convolution and pooling fits into the crop.

    Args:
        program: the delegate's exported program, its inputs (N, C, H, W), not lowered; it is not changed.
        budget: multiply-accumulates of one run.
    """
    if is_dynamic(program):
        return Crop(None, reason="it is not cropped: its shapes are dynamic")
    graph_module = copy.deepcopy(program.graph_module)
    size = attempted(
        lambda: _Cropping(graph_module, constant_placeholders(program)).shrink(budget)
    )
    if isinstance(size, Caught):  # No export ends because of its verification.
        error = size.causes[-1]
        if isinstance(error, _UncroppableError):
            return Crop(None, reason=str(error))
        return Crop(None, reason=f"it cannot be cropped: {size.reason}")
    height, width = size
    program = with_graph(program, graph_module, program.state_dict)
    return Crop(program, f"{height}x{width}")


class _Cropping:
    """A graph whose nodes are given the values they have on smaller inputs, again and again."""

    def __init__(self, graph_module: GraphModule, constants: frozenset[str]) -> None:
        self._nodes = list(graph_module.graph.nodes)
        self._full = {node: node.meta.get("val") for node in self._nodes}
        self._rates = _rates(self._nodes, self._full, constants)
        inputs = [node for node in self._rates if node.op == "placeholder"]
        self._inputs = [self._full[node] for node in inputs]
        self._frame = _frame(self._inputs)

    def shrink(self, budget: int) -> tuple[int, int]:
        """Give the nodes the values of the largest crop within the budget, and return its height and width."""
        height, width = self._frame
        # A crop differs by multiples of these, so that every node differs by whole pixels.
        down = lcm(*(rate[0].denominator for rate in self._rates.values()))
        across = lcm(*(rate[1].denominator for rate in self._rates.values()))
        steps = range(1, (height - 1) // down + 1)

        def size(step: int) -> tuple[int, int]:
            proportional = round(step * down * width / (height * across))
            fewer = min(proportional, (width - 1) // across)
            return height - step * down, width - fewer * across

        def fits(step: int) -> bool:
            try:
                self._run(size(step))
            except _UncroppableError:  # Too small for a window.
                return True
            return sum(map(macs, self._nodes)) <= budget

        place = bisect_left(steps, True, key=fits)
        if place == len(steps):
            at_a_time = f"({down}x{across} at a time)"
            raise _UncroppableError(
                f"no crop that keeps what strides leave over {at_a_time} is cheap enough"
            )
        self._run(size(steps[place]))
        return size(steps[place])

    def _run(self, size: tuple[int, int]) -> None:
        """Give the nodes the values of a crop of some height and width."""
        rows = self._frame[0] - size[0]
        columns = self._frame[1] - size[1]
        mode = self._inputs[0].fake_mode  # type: ignore[attr-defined]
        for node in self._nodes:
            if node.op == "output":
                node.meta["val"] = torch.fx.node.map_arg(node.args[0], example_value)
            if node not in self._rates:
                continue
            down, across = self._rates[node]
            height, width = _space(self._full[node])
            wanted = [height - down * rows, width - across * columns]
            with mode, torch.no_grad():
                value = self._cropped(node, wanted)
            node.meta["val"] = value
            if list(_space(value)) != wanted:
                raise _UncroppableError(
                    f"{op_name(node)} gives {_space(value)} on a crop, not {wanted}"
                )

    def _cropped(self, node: Node, size: list[Fraction]) -> Any:
        """Return a node's value, of some height and width if it is an input."""
        if node.op == "placeholder":
            input_ = self._full[node]
            shape = [*input_.shape[:2], *map(int, size)]
            order = input_.dim_order()
            return torch.empty_permuted(shape, order, dtype=input_.dtype)
        name = op_name(node)
        source = next(n for n in node.all_input_nodes if n in self._rates)
        cut = _space(source.meta["val"])
        whole = _space(self._full[source])
        window = _window(node)
        if cut[0] < min(whole[0], window[0]) or cut[1] < min(whole[1], window[1]):
            raise _UncroppableError(
                f"a crop within the budget is smaller than a window of {name}"
            )
        if name in _RESIZES and node.args[1] is not None:
            rate = self._rates[node]
            before = self._rates[source]
            height = int(cut[0] * (rate[0] / before[0]))
            width = int(cut[1] * (rate[1] / before[1]))
            node.update_arg(1, [height, width])
        value = attempted(called, node, example_value)
        if isinstance(value, Caught):
            message = " ".join(str(value.causes[-1]).split())[:100]
            raise _UncroppableError(f"{name} fails on a crop: {message}")
        return value


def _space(value: Tensor | Sequence[Tensor]) -> tuple[int, int]:
    """Return height and width of a value, of the first if there are several."""
    height, width = (value if isinstance(value, Tensor) else value[0]).shape[2:]
    return height, width


def _frame(inputs: list[Tensor]) -> tuple[int, int]:
    """Return the largest height and the largest width of the inputs."""
    heights, widths = zip(*map(_space, inputs), strict=True)
    return max(heights), max(widths)


def _rates(
    nodes: list[Node], values: Mapping[Node, Any], constants: frozenset[str]
) -> dict[Node, Rate]:
    """Return the rate of every node that has a height and a width; refuse operators that are not local in space."""
    inputs = {}
    for node in nodes:
        is_input = node.op == "placeholder" and node.name not in constants
        if is_input and _spacious(values[node]):
            inputs[node] = values[node]
    if not inputs:
        raise _UncroppableError("no input has a height and a width")
    if any(value.dim() != 4 for value in inputs.values()):
        raise _UncroppableError("an input is not of shape (N, C, H, W)")
    frame = _frame(list(inputs.values()))
    rates: dict[Node, Rate] = {}
    for node in nodes:
        if node in inputs:
            height, width = _space(inputs[node])
            rates[node] = Fraction(height, frame[0]), Fraction(width, frame[1])
        elif node.op != "output" and not rates.keys().isdisjoint(node.all_input_nodes):
            rates[node] = _rate(node, rates, values)
    return rates


def _spacious(value: object) -> bool:
    """Tell whether a value would be broadcast along a height or a width, or has them itself."""
    return isinstance(value, Tensor) and any(size != 1 for size in value.shape[-2:])


def _rate(node: Node, rates: Mapping[Node, Rate], values: Mapping[Node, Any]) -> Rate:
    of_inputs = {rates[n] for n in node.all_input_nodes if n in rates}
    name = op_name(node) or node.name
    first = node.args[0]
    if len(of_inputs) > 1:
        raise _UncroppableError(
            f"{name} joins inputs whose sizes are no whole multiples"
        )
    (rate,) = of_inputs
    if name in _WINDOWED:
        assert isinstance(first, Node)
        if any(n in rates for n in node.all_input_nodes if n is not first):
            raise _UncroppableError(f"the weights of {name} are computed")
        return _scaled(node, rate, values)
    if not _is_pixelwise(node, name):
        raise _UncroppableError(f"{name} is not local in space")
    if any(n not in rates and _spacious(values[n]) for n in node.all_input_nodes):
        raise _UncroppableError(f"{name} takes a constant with a height or a width")
    return rate


def _is_pixelwise(node: Node, name: str) -> bool:
    """Tell whether an operator computes each pixel from the same pixel of its inputs, or moves all of them alike."""
    if node.target is operator.getitem:
        return bool(node.args[1] == 0)
    if name == "aten::cat":
        return len(node.args) > 1 and node.args[1] in (1, -3)
    if name == "aten::pad":
        return len(node.args) < 3 or node.args[2] == "constant"
    operator_tags = getattr(getattr(node.target, "_op", None), "tags", ())
    return (
        torch.Tag.pointwise in operator_tags
        or name in _PIXELWISE
        or (is_dequantize(node) and "per_tensor" in name)
    )


def _scaled(node: Node, rate: Rate, values: Mapping[Node, Any]) -> Rate:
    """Return the rate behind an operator that resizes or takes windows."""
    name = op_name(node)
    if name in _RESIZES:
        if name == "aten::upsample_bilinear2d" and node.args[2]:
            raise _UncroppableError(f"{name} with align_corners depends on the size")
        before, after = _space(values[node.args[0]]), _space(values[node])  # type: ignore[index]
        height = rate[0] * Fraction(after[0], before[0])
        return height, rate[1] * Fraction(after[1], before[1])
    arguments: tuple[Any, ...] = node.args
    position = 3 if name == "aten::convolution" else 2
    strides = arguments[position] if len(arguments) > position else None
    down, across = _pair(strides or arguments[1])
    if name == "aten::convolution" and node.args[6]:
        return rate[0] * down, rate[1] * across
    return rate[0] / down, rate[1] / across


def _window(node: Node) -> tuple[int, int]:
    """Return how many rows and columns of its input one output of an operator sees."""
    name = op_name(node)
    sizes: Any
    dilations: Any = 1
    if name in _POOLS:
        sizes = node.args[1]
        if name != "aten::avg_pool2d" and len(node.args) > 4:
            dilations = node.args[4]
    elif name == "aten::convolution" and not node.args[6]:
        sizes, dilations = list(node.args[1].meta["val"].shape[2:]), node.args[5]  # type: ignore[union-attr]
    else:
        return 1, 1
    (height, width), (down, across) = _pair(sizes), _pair(dilations)
    return (height - 1) * down + 1, (width - 1) * across + 1


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    """Return an argument that is one number, or one for each axis, as two."""
    if isinstance(value, int):
        return value, value
    return value[0], value[-1]
