"""Cut a delegate's program down in space, so that one too large to verify can be verified on smaller inputs.

The operators have to be local in space: what they compute at one place depends on a window round it, alike everywhere.
"""

from __future__ import annotations

import copy
import operator
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.extraction import with_graph
from safe_arm.core.errors import SafeArmError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import QUANTIZE, is_dequantize, op_name
from safe_arm.core.macs import macs
from safe_arm.core.programs import constant_placeholders
from safe_arm.verification.concrete_sizes import is_dynamic

#: How many pixels of a node there are to one of the largest input, down and across; None if it has no space.
Rate = tuple[Fraction, Fraction] | None

_ALIKE = frozenset(
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
#: Where the operator says whether the corners are aligned, None if they never are: the step then depends on the size.
_RESIZES = {"aten::upsample_nearest2d": None, "aten::upsample_bilinear2d": 2}


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

    What is left over at the borders by strides is left over in the crop, and a whole window of each convolution and
    pooling fits into it.

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
    if isinstance(size, Caught):  # No export dies of its verification.
        error = size.causes[-1]
        told = isinstance(error, _UncroppableError)
        return Crop(
            None, reason=str(error) if told else f"it cannot be cropped: {size.reason}"
        )
    return Crop(
        with_graph(program, graph_module, program.state_dict), "x".join(map(str, size))
    )


class _Cropping:
    """Gives the nodes of a graph the values they have on smaller inputs, again and again."""

    def __init__(self, graph_module: GraphModule, constants: frozenset[str]) -> None:
        self._nodes = list(graph_module.graph.nodes)
        self._full = {node: node.meta.get("val") for node in self._nodes}
        self._rates = _rates(self._nodes, self._full, constants)
        self._frame = _frame(self._inputs())

    def _inputs(self) -> list[Tensor]:
        return [
            self._full[n]
            for n, rate in self._rates.items()
            if n.op == "placeholder" and rate is not None
        ]

    def shrink(self, budget: int) -> tuple[int, int]:
        """Give the nodes the values of the largest crop within the budget, and return its height and width."""
        height, width = self._frame
        known = [rate for rate in self._rates.values() if rate is not None]
        # By so many pixels a crop may differ so that every node differs by whole pixels.
        down, across = (
            lcm(*(rate[axis].denominator for rate in known)) for axis in (0, 1)
        )
        steps = range(1, (height - 1) // down + 1)

        def size(step: int) -> tuple[int, int]:
            fewer = min(
                round(step * down * width / (height * across)), (width - 1) // across
            )
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
        cut = [whole - left for whole, left in zip(self._frame, size, strict=True)]
        mode = self._inputs()[0].fake_mode  # type: ignore[attr-defined]
        for node in self._nodes:
            rate = self._rates.get(node)
            if node.op == "output":
                node.meta["val"] = torch.fx.node.map_arg(
                    node.args[0], lambda n: n.meta["val"]
                )
            elif rate is not None:
                with mode, torch.no_grad():
                    wanted = [
                        n - r * c
                        for n, r, c in zip(
                            _space(self._full[node]), rate, cut, strict=True
                        )
                    ]
                    value = (
                        self._input(node, wanted)
                        if node.op == "placeholder"
                        else self._called(node)
                    )
                node.meta["val"] = value
                if list(_space(value)) != wanted:
                    raise _UncroppableError(
                        f"{op_name(node)} gives {_space(value)} on a crop, not {wanted}"
                    )

    def _input(self, node: Node, wanted: list[Fraction]) -> Tensor:
        whole = self._full[node]
        shape, order = [*whole.shape[:2], *map(int, wanted)], list(whole.dim_order())
        stored = torch.empty([shape[dim] for dim in order], dtype=whole.dtype)
        return stored.permute([order.index(dim) for dim in range(len(order))])

    def _called(self, node: Node) -> Any:
        args, kwargs = torch.fx.node.map_arg(
            (node.args, node.kwargs), lambda n: n.meta["val"]
        )
        given = next(n for n in node.all_input_nodes if self._rates.get(n) is not None)
        for has, whole, window in zip(
            _space(given.meta["val"]),
            _space(self._full[given]),
            _window(node),
            strict=True,
        ):
            if has < min(whole, window):
                raise _UncroppableError(
                    f"a crop within the budget is smaller than a window of {op_name(node)}"
                )
        if op_name(node) in _RESIZES and node.args[1] is not None:
            rates = zip(self._rates[node] or (), self._rates[given] or (), strict=True)
            factors = [rate / before for rate, before in rates]
            node.update_arg(
                1,
                [
                    int(n * f)
                    for n, f in zip(_space(given.meta["val"]), factors, strict=True)
                ],
            )
            args = (args[0], node.args[1], *args[2:])
        value = attempted(node.target, *args, **kwargs)  # type: ignore[arg-type]
        if isinstance(value, Caught):
            message = " ".join(str(value.causes[-1]).split())[:100]
            raise _UncroppableError(f"{op_name(node)} fails on a crop: {message}")
        return value


def _space(value: Tensor | Sequence[Tensor]) -> tuple[int, int]:
    """Return height and width of a value, of the first if there are several."""
    height, width = (value if isinstance(value, Tensor) else value[0]).shape[2:]
    return height, width


def _frame(inputs: list[Tensor]) -> tuple[int, int]:
    return max(_space(value)[0] for value in inputs), max(
        _space(value)[1] for value in inputs
    )


def _rates(
    nodes: list[Node], values: Mapping[Node, Any], constants: frozenset[str]
) -> dict[Node, Rate]:
    """Return the rate of every node but the output; refuse what is not local in space."""
    inputs = {
        n: values[n]
        for n in nodes
        if n.op == "placeholder" and n.name not in constants and _spacious(values[n])
    }
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
        elif node.op != "output":
            rates[node] = _rate(node, rates, values)
    return rates


def _spacious(value: object) -> bool:
    """Tell whether a value would be broadcast along a height or a width, or has them itself."""
    return isinstance(value, Tensor) and any(size != 1 for size in value.shape[-2:])


def _rate(node: Node, rates: Mapping[Node, Rate], values: Mapping[Node, Any]) -> Rate:
    known = {rate for n in node.all_input_nodes if (rate := rates[n]) is not None}
    if not known:
        return None
    name, first = op_name(node), node.args[0]
    if len(known) > 1:
        raise _UncroppableError(
            f"{name or node.name} joins inputs whose sizes are no whole multiples"
        )
    (rate,) = known
    if name == "aten::convolution" or name in _POOLS or name in _RESIZES:
        assert isinstance(first, Node)
        if any(rates[n] is not None for n in node.all_input_nodes if n is not first):
            raise _UncroppableError(f"the weights of {name} are computed")
        return _scaled(node, rate, values)
    if not _is_alike(node, name):
        raise _UncroppableError(f"{name or node.name} is not local in space")
    if any(rates[n] is None and _spacious(values[n]) for n in node.all_input_nodes):
        raise _UncroppableError(f"{name} takes a constant with a height or a width")
    return rate


def _is_alike(node: Node, name: str) -> bool:
    """Tell whether an operator computes each pixel from the same pixel of its inputs, or moves all of them alike."""
    if node.target is operator.getitem:
        return bool(node.args[1] == 0)
    if name == "aten::cat":
        return (node.args[1] if len(node.args) > 1 else 0) in (1, -3)
    if name == "aten::pad":
        return len(node.args) < 3 or node.args[2] == "constant"
    pointwise = torch.Tag.pointwise in getattr(
        getattr(node.target, "_op", None), "tags", ()
    )
    return pointwise or name in _ALIKE or (is_dequantize(node) and "per_tensor" in name)


def _scaled(
    node: Node, rate: tuple[Fraction, Fraction], values: Mapping[Node, Any]
) -> Rate:
    name = op_name(node)
    if name in _RESIZES:
        aligned = _RESIZES[name]
        if aligned is not None and node.args[aligned]:
            raise _UncroppableError(f"{name} with align_corners depends on the size")
        before, after = _space(values[node.args[0]]), _space(values[node])  # type: ignore[index]
        return rate[0] * Fraction(after[0], before[0]), rate[1] * Fraction(
            after[1], before[1]
        )
    at = 3 if name == "aten::convolution" else 2
    arguments: tuple[Any, ...] = node.args
    strides = arguments[at] if len(arguments) > at else None
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
    down, across = (
        (size - 1) * far + 1
        for size, far in zip(_pair(sizes), _pair(dilations), strict=True)
    )
    return down, across


def _pair(value: int | Sequence[int]) -> Iterator[int]:
    sizes = [value] if isinstance(value, int) else list(value)
    return iter(sizes * (2 // len(sizes)))
