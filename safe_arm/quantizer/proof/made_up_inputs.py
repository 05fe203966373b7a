"""Generate inputs for a float graph, with the shapes and dtypes that it was exported with."""

from __future__ import annotations

from typing import Any

import torch
from torch import SymInt, Tensor
from torch.fx import GraphModule

from safe_arm.quantizer.masks.runtime_masks import inputs_of_masks
from safe_arm.quantizer.proof.float_net import Call

#: Integers may be indices; these are valid for any table of two rows.
_INTEGERS = 2
_SEED = 20260


def made_up_inputs(model: GraphModule) -> tuple[Call, ...]:
    """Return sets of inputs, one value for each placeholder; none if one cannot be made up.

    One set is normal, the other made of multiples of a half, where rounding and comparing change over. None is large:
    what a decomposition makes of values beyond those of the net, such as log(softmax(x)) of -100, is no concern. What a
    mask is a multiple of is 0 or 1.

    Args:
        model: a float graph whose placeholders have fake values; dynamic sizes are taken as in the example.
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
    for name, halves in (("normal inputs", False), ("multiples of a half", True)):
        inputs = []
        for value, is_mask in zip(values, masks, strict=True):
            made_up = _made_up(value, generator, halves=halves)
            if is_mask and isinstance(made_up, Tensor):
                made_up = (made_up > 0).to(made_up.dtype)
            inputs.append(made_up)
        calls.append(Call(name, tuple(inputs), flat=True))
    return tuple(calls)


def _made_up(value: Any, generator: torch.Generator, *, halves: bool) -> Any:
    if isinstance(value, SymInt):
        return _size(value)
    if not isinstance(value, Tensor):
        return value
    shape = [_size(size) for size in value.shape]
    if value.dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=value.dtype)
    if not value.dtype.is_floating_point:
        return torch.randint(0, _INTEGERS, shape, generator=generator).to(value.dtype)
    floats = torch.randn(shape, generator=generator)
    if halves:
        # No code is a negative zero, whose reciprocal has the other sign.
        floats = (floats * 4).round() / 2 + 0.0
    return floats.to(value.dtype)


def _size(size: int | SymInt) -> int:
    """Return a size as a number: that of the example, where it is dynamic."""
    return size if isinstance(size, int) else int(size.node.hint)
