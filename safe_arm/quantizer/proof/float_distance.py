"""Decide whether two float graphs differ by no more than float32 rounding.

A difference of less than half a code of int16 needs no second look. Anything more is held against what rounding does to
this net on these inputs: every operator's floats are moved by a few roundings at random, several times over, and the
spread of the results is the bound (Monte Carlo arithmetic; Parker, Pierce and Eggert, 2000). Integers have to be equal,
but for those that such a move changes, as an argmax of two values that are as large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Interpreter
from torch.fx.node import Argument, Target
from torch.utils._pytree import tree_leaves, tree_map

from safe_arm.core.differences import BEYOND, absolute_difference, largest
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.operators import named
from safe_arm.quantizer.proof.float_net import (
    Call,
    FloatNet,
    Results,
    copies_of,
    state_kept,
)

#: Share of an output's largest value that is less than half a code of int16.
NEGLIGIBLE = 2.0**-16
#: Share by which each float is moved to find out what rounding does: eight roundings of float32.
_MOVED = 2.0**-21
#: The same two for floats of 16 bits, in units of their own precision.
_NEGLIGIBLE_STEPS = 8
_MOVED_STEPS = 2
_AUTOCAST = torch.ops.higher_order.wrap_with_autocast
#: Operators that subtract a mean of what they read: the rounding of that is in the result, many times over where values
#: all but agree.
_CENTRING = named("group_norm instance_norm layer_norm std var")
#: Number of runs of the net with its floats moved, and the factor by which the spread of the results is multiplied.
_RUNS = 12
_SAFETY = 32.0
#: A run in four makes the other of two equal values the larger, so that 12 runs miss one tie in 30.
_MISSED = 1 / 16


def difference(
    net: FloatNet,
    call: Call,
    actual: Results,
    expected: Results,
) -> str:
    """Say how what a graph gave differs from what the net gives; empty if it does not, up to rounding.

    Args:
        net: the net, in the state in which it was called.
        call: what both were called on.
        actual: what the other graph gave.
        expected: what the net gave.
    """
    if len(actual.outputs) != len(expected.outputs):
        return f"{len(actual.outputs)} outputs instead of {len(expected.outputs)}"
    suspects = {}
    for name, value in expected.named.items():
        other = actual.named[name]
        if kind := _other_kind(other, value):
            return f"{name} {kind}"
        if isinstance(value, Tensor) and call.flat and value.is_floating_point():
            # Inputs that are made up may be none of the net's; where it gives no number, any will do.
            other = other.where(~value.isnan(), value)
        if isinstance(value, Tensor) and not _is_close(other, value):
            suspects[name] = other, value
    if not suspects:
        return ""
    moved = []
    for _ in range(_RUNS):
        results = _moved(net, call)
        if results is not None:
            moved.append(results.named)
    for name, (other, value) in suspects.items():
        difference = _beyond(other, value, [values[name] for values in moved])
        if difference:
            return f"{name} {difference}"
    return ""


def _other_kind(actual: object, expected: object) -> str:
    """Say how a value is another kind of thing than the one that is wanted; empty if it is the same kind."""
    if not isinstance(expected, Tensor):
        if type(actual) is type(expected) and actual == expected:
            return ""
        return f"is {actual!r} instead of {expected!r}"
    if not isinstance(actual, Tensor):
        return "is lost"
    if actual.dtype != expected.dtype:
        return f"is {_name(actual.dtype)} instead of {_name(expected.dtype)}"
    if actual.shape != expected.shape:
        return f"has shape {tuple(actual.shape)} instead of {tuple(expected.shape)}"
    return ""


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _is_close(actual: Tensor, expected: Tensor) -> bool:
    if not expected.is_floating_point():
        return torch.equal(actual, expected)
    expected = expected.detach()
    off = _apart(actual.detach(), expected)
    return not off.numel() or float(off.max()) <= _negligible(expected)


def _apart(actual: Tensor, expected: Tensor) -> Tensor:
    """Return how far each value is from the other, as far as a quantiser can tell."""
    if expected.is_complex():
        return absolute_difference(actual, expected)
    bounds = -BEYOND, BEYOND
    # A clamp of a half refuses bounds that it cannot hold.
    actual = actual.double().clamp(*bounds)
    return absolute_difference(actual, expected.double().clamp(*bounds))


def _negligible(expected: Tensor) -> float:
    """Return the difference that needs no second look."""
    share = max(NEGLIGIBLE, _NEGLIGIBLE_STEPS * _precision(expected.dtype))
    return share * largest(expected)


def _precision(dtype: torch.dtype) -> float:
    """Return the precision of a dtype of 16 bits; 0 for a wider one, whose rounding is far below what matters."""
    if dtype in (torch.float16, torch.bfloat16):
        return torch.finfo(dtype).eps
    return 0.0


def _beyond(actual: Tensor, expected: Tensor, moved: Sequence[Tensor]) -> str:
    """Say how far a value is off beyond what rounding does to it; empty if it is not."""
    spread = torch.zeros_like(expected, dtype=torch.float64)
    for each in moved:
        if each.shape == expected.shape:
            spread = torch.maximum(spread, absolute_difference(each, expected))
    if not expected.is_floating_point() or expected.dtype.is_complex:
        unequal = actual != expected
        count = int((unequal & (spread == 0)).sum())
        ties = int((unequal & (spread > 0)).sum())
        if count <= _MISSED * ties:
            return ""
        return f"differs in {count} of {expected.numel()} values"
    off = _apart(actual, expected)
    if spread.isfinite().all():
        typical = float(spread.flatten().median())
        spread = spread.clamp(min=typical)
    allowed = _SAFETY * spread + _negligible(expected)
    beyond = off > allowed
    if not bool(beyond.any()):
        return ""
    worst = float(off[beyond].max())
    values = f"{int(beyond.sum())} of {expected.numel()} values, the largest {largest(expected):.3g}"
    return f"is off by up to {worst:.3g} in {values}"


def _moved(net: FloatNet, call: Call) -> Results | None:
    """Return what the net gives where each operator's floats are moved a little; None if it cannot be run so."""
    own = call.own()
    inputs = own.args
    if not own.flat:
        inputs = tuple(tree_leaves((own.args, own.keywords)))
    with torch.no_grad(), state_kept(net.module):
        moving = _Moving(net.module)
        outputs = attempted(moving.run, *inputs, enable_io_processing=False)
        if isinstance(outputs, Caught):
            return None
        return Results(tree_leaves(outputs), copies_of(net.module, net.state))


class _Moving(Interpreter):
    """Runs a graph and moves what each operator computes by a few roundings, at random."""

    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        if target is _AUTOCAST:
            how: Any = args[:4]
            body: Any = args[4]
            with torch.autocast(*how):
                return _Moving(body).run(*args[5:], enable_io_processing=False)
        schema = getattr(target, "_schema", None)
        if schema is not None and schema.name in _CENTRING:
            args = (_jittered(args[0]), *args[1:])
        result = super().call_function(target, args, kwargs)
        if schema is None or any(
            each.alias_info is not None for each in schema.returns
        ):
            return result
        return tree_map(_jittered, result)


def _jittered(value: Any) -> Any:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    signs = torch.randint(0, 2, value.shape, dtype=value.dtype) * 2 - 1
    return value * (1 + signs * max(_MOVED, _MOVED_STEPS * _precision(value.dtype)))
