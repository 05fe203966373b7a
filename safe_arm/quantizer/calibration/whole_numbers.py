"""Whole numbers stay whole: the step of what a ``floor``, a cast of an integer or a count gives divides 1.

Other steps seldom do: 3 becomes 2.97, and its cast to an index 2. Ranges with more whole numbers than codes keep their
step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torchao.quantization.pt2e.observer import UniformQuantizationObserverBase

from safe_arm._compat.annotations import ScaleAndZero
from safe_arm.core.attributes import stored_value
from safe_arm.core.island import op_name
from safe_arm.core.operators import ElementOrigin, named, operators
from safe_arm.quantizer.graphs.graph_edits import tensor_of
from safe_arm.quantizer.graphs.stand_ins import Observers, has_one_scale, value_of

_ROUNDS = named("ceil floor round sign trunc")
#: Operators that give whole numbers of whole numbers.
_KEEPS_WHOLE = named(
    "abs add cumsum maximum minimum mul neg rsub square sub sum"
) | operators(
    ElementOrigin.VIEW,
    ElementOrigin.PART,
    ElementOrigin.EXTREME,
    ElementOrigin.BOUNDED,
    ElementOrigin.PADDED,
    ElementOrigin.JOINED,
    ElementOrigin.MERGED,
    ElementOrigin.CAST,
)

_FindQParams = Callable[[Tensor, Tensor], ScaleAndZero]


def keep_whole_numbers(observers: Observers) -> None:
    """Give a step that divides 1 to values that are whole numbers, whatever the input is.

    Args:
        observers: the observer of each annotated place; changed in place. Fake-quantise modules are left alone.
    """
    watched: dict[int, list[Node]] = {}
    for place, observer in observers.items():
        watched.setdefault(id(observer), []).append(value_of(place))
    whole: set[Node] | None = None
    for observer in {id(each): each for each in observers.values()}.values():
        if not isinstance(observer, UniformQuantizationObserverBase):
            continue
        values = watched[id(observer)]
        if whole is None:
            whole = _whole_numbers(values[0].graph)
        if not has_one_scale(observer) or not whole.issuperset(values):
            continue
        if not all(_is_one_number(value) for value in values):
            find = partial(_whole_qparams, observer, observer._calculate_qparams)
            observer._calculate_qparams = find  # type: ignore[method-assign]


def _is_one_number(value: Node) -> bool:
    """Tell whether a value is a constant of one number and zeros; the steps of its range divide it."""
    if value.op != "get_attr":
        return False
    constant = stored_value(value).detach()
    return len(constant[constant != 0].unique()) <= 1


def _whole_numbers(graph: Graph) -> set[Node]:
    """Return the values all of whose elements are whole numbers, whatever the inputs are."""
    whole: set[Node] = set()
    for node in graph.nodes:
        value = tensor_of(node)
        if value is None or value.is_complex():
            continue
        if not value.is_floating_point():
            whole.add(node)
        elif node.op == "get_attr":
            constant = stored_value(node)
            if _are_whole(constant.detach()):
                whole.add(node)
        elif op_name(node) in _ROUNDS:
            if not node.kwargs.get("decimals"):
                whole.add(node)
        elif op_name(node) in _KEEPS_WHOLE:
            arguments = (*node.args, *node.kwargs.values())
            numbers = [each for each in arguments if isinstance(each, float)]
            sources = node.all_input_nodes
            if whole.issuperset(sources) and _are_whole(torch.tensor(numbers)):
                whole.add(node)
    return whole


def _are_whole(numbers: Tensor) -> bool:
    return bool((numbers.isfinite() & (numbers == numbers.round())).all())


def _whole_qparams(
    observer: UniformQuantizationObserverBase,
    of_range: _FindQParams,
    low: Tensor,
    high: Tensor,
) -> ScaleAndZero:
    """Return scale and zero point of a wider range, whose step is a power of 2 and divides 1, if there is one."""
    if not torch.isfinite(high - low):
        return of_range(low, high)
    codes = int(observer.quant_max) - int(observer.quant_min)
    symmetric = observer.qscheme == torch.per_tensor_symmetric
    lowest = min(math.floor(low), 0)
    highest = max(math.ceil(high), 0)
    reached = 2 * max(-lowest, highest) if symmetric else highest - lowest
    if not 0 < reached <= codes:
        return of_range(low, high)
    step = 2.0 ** -math.floor(math.log2(codes / reached))
    width = codes * step
    start = 0.0
    if symmetric or lowest < 0:
        start = min(lowest, max(highest - width, -width / 2))
    return of_range(torch.full_like(low, start), torch.full_like(high, start + width))
