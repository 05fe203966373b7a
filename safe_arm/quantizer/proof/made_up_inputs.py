"""Generate inputs for a float graph, with the dtypes that it was exported with, and shapes that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import SymInt, Tensor
from torch.fx import GraphModule

from safe_arm._compat.dynamic_sizes import another_size
from safe_arm.quantizer.masks.runtime_masks import inputs_of_masks
from safe_arm.quantizer.proof.float_net import Call
from safe_arm.quantizer.spellings.spelled_orders import reads_places

#: Integers may be indices; these are valid for any table of two rows.
_INTEGERS = 2
_SEED = 20260


def made_up_inputs(model: GraphModule) -> tuple[Call, ...]:
    """Return sets of inputs, one value for each placeholder; none if one cannot be made up.

    One set is normal, the other made of multiples of a half, where rounding and comparing change over. None is large:
    what a decomposition makes of values beyond those of the net, such as log(softmax(x)) of -100, is no concern. What a
    mask is a multiple of is 0 or 1.

    A graph that reads the places of a sort or of ``topk`` has no multiples of a half, among which many are equal.

    A graph with dynamic sizes has a third set, of other sizes: where a step or pass puts those of the example in,
    samples of one size do not show it.

    Args:
        model: a float graph whose placeholders have fake values; dynamic sizes are those of the example otherwise.
    """
    values = []
    masks = []
    of_masks = inputs_of_masks(model)
    for node in model.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if not isinstance(value, (Tensor, bool, int, float, SymInt, type(None))):
            return ()
        values.append(value)
        masks.append(node in of_masks)
    generator = torch.Generator().manual_seed(_SEED)
    calls = []
    sets = [("normal inputs", False, _example_size)]
    if not reads_places(model):
        sets.append(("multiples of a half", True, _example_size))
    if any(map(_is_dynamic, values)):
        sets.append(("normal inputs of other sizes", False, _other_size))
    for name, halves, size_of in sets:
        inputs = []
        for value, is_mask in zip(values, masks, strict=True):
            made_up = _made_up(value, generator, size_of, halves=halves)
            if is_mask and isinstance(made_up, Tensor):
                made_up = (made_up > 0).to(made_up.dtype)
            inputs.append(made_up)
        calls.append(Call(name, tuple(inputs), flat=True))
    return tuple(calls)


def _is_dynamic(value: object) -> bool:
    sizes = value.shape if isinstance(value, Tensor) else [value]
    return any(isinstance(size, SymInt) for size in sizes)


def _made_up(
    value: Any,
    generator: torch.Generator,
    size_of: Callable[[int | SymInt], int],
    *,
    halves: bool,
) -> Any:
    if isinstance(value, SymInt):
        return size_of(value)
    if not isinstance(value, Tensor):
        return value
    shape = [size_of(size) for size in value.shape]
    if value.dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=value.dtype)
    if not value.dtype.is_floating_point:
        return torch.randint(0, _INTEGERS, shape, generator=generator).to(value.dtype)
    floats = torch.randn(shape, generator=generator)
    if halves:
        # No code is a negative zero, whose reciprocal has the other sign.
        floats = (floats * 4).round() / 2 + 0.0
    return floats.to(value.dtype)


def _example_size(size: int | SymInt) -> int:
    """Return a size as a number: that of the example, where it is dynamic."""
    return size if isinstance(size, int) else int(size.node.hint)


def _other_size(size: int | SymInt) -> int:
    return size if isinstance(size, int) else another_size(size)
