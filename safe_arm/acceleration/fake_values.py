"""The value a re-trace computes for an operator, computed once for all operators that look alike.

ExecuTorch's passes re-trace the whole graph, and evaluate every operator on fake tensors to learn shapes and dtypes.
What comes out depends on the operator, the constants and what its tensors look like.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Interpreter
from torch.fx.node import Target
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from safe_arm._compat.upstream import EdgeOpOverload
from safe_arm.acceleration.long_constants import Whole
from safe_arm.acceleration.shortcuts import shortcuts, taking

Key = tuple[Any, ...]

_CONSTANTS = (
    int,
    float,
    bool,
    str,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)


def remembered() -> AbstractContextManager[None]:
    """Remember fake values by what they were computed from, in this thread, while the block runs."""
    known = shortcuts().fake_values
    return taking(fake_values={} if known is None else known)


def remembering(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an interpreter's call: in the block of ``remembered`` equal calls are evaluated once."""

    def call_function(
        self: Interpreter, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        values = shortcuts().fake_values
        # A subclass may do more than evaluate.
        if (
            values is None
            or type(self) is not Interpreter
            or not isinstance(target, (OpOverload, EdgeOpOverload))
        ):
            return stock(self, target, args, kwargs)
        if _is_observed():
            return stock(self, target, args, kwargs)
        modes: set[FakeTensorMode] = set()
        key = _key((args, kwargs), modes)
        op = target._op if isinstance(target, EdgeOpOverload) else target
        if key is None or len(modes) != 1 or op._schema.is_mutable:
            return stock(self, target, args, kwargs)
        known = values.get((op, *modes, key))
        if known is None:
            known = stock(self, target, args, kwargs)
            if type(known) is FakeTensor and _look(known) is not None:
                values[(op, *modes, key)] = known
        return known

    return call_function


def _is_observed() -> bool:
    """Whether a mode beside the one of fake tensors sees each operator.

    A tracer has to: the branches of a condition are traced to learn what they write into, and a value that no operator
    of the trace computed is a constant to it. In a branch of a branch it then looks for that constant in vain.
    """
    return any(
        type(mode) is not FakeTensorMode for mode in _get_current_dispatch_mode_stack()
    )


def _key(value: object, modes: set[FakeTensorMode]) -> Key | None:
    """Name a value by its constants and the look of its tensors, and note their modes; None for anything else."""
    if type(value) is FakeTensor:
        modes.add(value.fake_mode)  # type: ignore[attr-defined]
        return _look(value)
    if type(value) in _CONSTANTS:
        return type(value), value
    if type(value) is Whole:
        return Whole, tuple(value), tuple(map(type, value))
    if isinstance(value, (tuple, list)):
        keys = tuple(_key(element, modes) for element in value)
        return None if None in keys else (type(value), keys)
    if isinstance(value, dict):
        return _key([part for item in value.items() for part in item], modes)
    return None


def _look(tensor: FakeTensor) -> Key | None:
    """What an operator can see of a tensor; None for one with symbolic sizes, known contents or a special layout."""
    if (
        tensor._has_symbolic_sizes_strides
        or tensor.constant is not None
        or tensor.layout is not torch.strided
    ):
        return None
    return (
        tensor.dtype,
        tensor.shape,
        tensor.stride(),
        tensor.device,
        tensor.requires_grad,
    )
