"""Re-trace a long list of numbers as one value, not number by number.

The multipliers of a rescale are a list with an entry for each channel. In each re-trace ExecuTorch's passes take each
list apart three times, and check of every entry whether it is a tensor, a parameter, a module or a symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeGuard

from torch.fx.immutable_collections import immutable_list

from safe_arm.acceleration.shortcuts import shortcuts, taking

Arguments = tuple[Any, ...]
Named = Mapping[str, Any]

#: Minimum length, exclusive, of a list that is kept in one piece.
LONG = 8

_NUMBERS = frozenset((int, float, bool))


class Whole(list[Any]):
    """A list of numbers that is a leaf in torch's trees of values, which take apart ``list`` itself only."""


def whole() -> AbstractContextManager[None]:
    """Leave long lists of numbers in one piece, in this thread, while the block runs."""
    return taking(whole_constants=True)


def in_one_piece(args: Arguments, kwargs: Named) -> tuple[Arguments, Named]:
    """Return an operator's arguments with its long lists whole, in the block of ``whole``."""
    return _mapped(_wrapped, args, kwargs)


def unpacked(args: Arguments, kwargs: Named) -> tuple[Arguments, Named]:
    """Return an operator's arguments with plain lists in place of whole ones."""
    return _mapped(_unwrapped, args, kwargs)


def _mapped(
    function: Callable[[Any], Any], args: Arguments, kwargs: Named
) -> tuple[Arguments, Named]:
    if not shortcuts().whole_constants:
        return args, kwargs
    named = {name: function(argument) for name, argument in kwargs.items()}
    return tuple(map(function, args)), named


def _wrapped(argument: object) -> object:
    return Whole(argument) if is_long(argument) else argument


def _unwrapped(argument: object) -> object:
    return list(argument) if type(argument) is Whole else argument


def taken_whole(create_arg: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a tracer's making of a node's argument: a whole list is one."""

    def taken(a: Any) -> Any:
        if shortcuts().whole_constants and (type(a) is Whole or is_long(a)):
            return list(a)
        return create_arg(a)

    return taken


def is_long(argument: object) -> TypeGuard[list[Any]]:
    """Tell whether an argument is a list of numbers that stays in one piece."""
    if not isinstance(argument, list) or type(argument) not in (list, immutable_list):
        return False
    return len(argument) > LONG and _NUMBERS.issuperset(map(type, argument))
