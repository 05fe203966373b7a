"""Re-trace a long list of numbers in one piece, not number by number.

The multipliers of a rescale are a list with an entry for each channel. In each re-trace ExecuTorch's passes take each
list apart three times, check of every entry whether it is a tensor, a parameter, a module or a symbol, and write the
operator out as text for debugging.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeGuard

from torch.fx import Interpreter, Node
from torch.fx.immutable_collections import immutable_list
from torch.fx.node import Target

from safe_arm._compat.upstream import ExportPass, NodeMetadata, ProxyValue
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


def in_one_piece(stock: Callable[..., ProxyValue]) -> Callable[..., ProxyValue]:
    """Wrap the trace of an operator: its long lists are whole in the block of ``whole``."""

    def _fx(
        self: ExportPass,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        meta: NodeMetadata,
    ) -> ProxyValue:
        if shortcuts().whole_constants:
            args, kwargs = _mapped(_wrapped, args, kwargs)
        return stock(self, kind, target, args, kwargs, meta)

    return _fx


def _mapped(
    function: Callable[[Any], Any], args: Arguments, kwargs: Named
) -> tuple[Arguments, Named]:
    if kwargs:
        kwargs = {name: function(argument) for name, argument in kwargs.items()}
    return tuple(map(function, args)), kwargs


def _wrapped(argument: object) -> object:
    return Whole(argument) if _is_long(argument) else argument


def _unwrapped(argument: object) -> object:
    return list(argument) if type(argument) is Whole else argument


def unpacked(args: Arguments, kwargs: Named) -> tuple[Arguments, Named]:
    """Return an operator's arguments with plain lists in place of whole ones."""
    if not shortcuts().whole_constants:
        return args, kwargs
    return _mapped(_unwrapped, args, kwargs)


def taken_whole(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the making of a node's argument: a whole list is one."""

    def create_arg(self: ExportPass.ExportTracer, a: Any) -> Any:
        if shortcuts().whole_constants and (type(a) is Whole or _is_long(a)):
            return list(a)
        return stock(self, a)

    return create_arg


def _is_long(argument: object) -> TypeGuard[list[Any]]:
    if not isinstance(argument, list) or type(argument) not in (list, immutable_list):
        return False
    return len(argument) > LONG and _NUMBERS.issuperset(map(type, argument))


def unwritten(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the re-trace of a node: its long lists are not written out as text."""

    def run_node(self: Interpreter, n: Node) -> Any:
        if not shortcuts().whole_constants or not any(map(_is_long, n.args)):
            return stock(self, n)
        # Stock does the same, with the operator's whole text in place of its name.
        self.node, self.callback.node_debug_str = n, n.name  # type: ignore[attr-defined]
        return Interpreter.run_node(self, n)

    return run_node


#: The class that defines ``_fx``, and the interpreter that calls it.
BASE: type = next(cls for cls in ExportPass.__mro__ if "_fx" in vars(cls))
INTERPRETER: type = vars(BASE)["ExportInterpreter"]
