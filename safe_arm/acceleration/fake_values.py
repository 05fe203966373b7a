"""Cache the values that re-traces compute, by operator, constants and properties of the tensors.

ExecuTorch's passes re-trace the whole graph, and evaluate every operator on fake tensors to learn shapes and dtypes.
The result depends on the operator, on the constants, and on dtype, shape and layout of the tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.node import Target
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as _mode_stack

from safe_arm._compat.upstream import EdgeOpOverload
from safe_arm.acceleration.shortcuts import shortcuts, taking

Key = tuple[Any, ...]
Evaluate = Callable[..., Any]

_NUMBERS = frozenset((int, float, bool))
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
    """Cache fake values, in this thread, while the block runs."""
    if shortcuts().fake_values is None:
        return taking(fake_values={})
    return nullcontext()


def remembering(evaluate: Evaluate) -> Evaluate:
    """Wrap the evaluation of operators by a pass: in the block of ``remembered`` equal calls are evaluated once."""

    def call_function(
        target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        def evaluated() -> Any:
            return evaluate(target, args, kwargs)

        values = shortcuts().fake_values
        if values is None:
            return evaluated()
        op = target._op if isinstance(target, EdgeOpOverload) else target
        if not isinstance(op, OpOverload) or op._schema.is_mutable:
            return evaluated()
        # A tracer has to see each operator. It traces the branches of a condition to learn which inputs they write to,
        # and takes a value that no operator of the trace computed for a constant. In a nested branch it then cannot
        # find that constant.
        if any(type(mode) is not FakeTensorMode for mode in _mode_stack()):
            return evaluated()
        modes: set[FakeTensorMode] = set()
        key = _key((args, kwargs), modes)
        if key is None or len(modes) != 1:
            return evaluated()
        key = op, *modes, key
        if key in values:
            return _another(values[key])
        value = evaluated()
        if type(value) is FakeTensor and _look(value) is not None:
            values[key] = value
        return value

    return call_function


def _another(value: FakeTensor) -> torch.Tensor:
    """Return another tensor that looks the same: a trace that a pass makes tells its inputs apart by object.

    It is made as fake tensors are, without an operator that the mode would have to look up.
    """
    with no_dispatch():
        meta = torch.empty_strided(
            value.shape,
            value.stride(),
            dtype=value.dtype,
            device="meta",
            requires_grad=value.requires_grad,
        )
    return FakeTensor(value.fake_mode, meta, value.device)


def _key(value: object, modes: set[FakeTensorMode]) -> Key | None:
    """Return a key of a value's constants and the look of its tensors, and add their modes; None for other values."""
    if type(value) is FakeTensor:
        modes.add(value.fake_mode)  # type: ignore[attr-defined]
        return _look(value)
    if type(value) in _CONSTANTS:
        return type(value), value
    if isinstance(value, list) and _NUMBERS.issuperset(map(type, value)):
        return list, tuple(value), tuple(map(type, value))
    if isinstance(value, (tuple, list)):
        keys = []
        for element in value:
            key = _key(element, modes)
            if key is None:
                return None
            keys.append(key)
        return type(value), tuple(keys)
    if isinstance(value, dict):
        return _key([*value, *value.values()], modes)
    return None


def _look(tensor: FakeTensor) -> Key | None:
    """Return the properties of a tensor that operators see.

    None for a tensor with symbolic sizes, known contents or a special layout.
    """
    if tensor._has_symbolic_sizes_strides or tensor.constant is not None:
        return None
    if tensor.layout is not torch.strided:
        return None
    size = tensor.shape, tensor.stride()
    return tensor.dtype, *size, tensor.device, tensor.requires_grad
