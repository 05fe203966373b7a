"""A long list of numbers goes through a re-trace in one piece, not number by number.

The multipliers of a rescale are a list with an entry for each channel. ExecuTorch's passes take each list apart three
times a re-trace, ask of every entry whether it is a tensor, a parameter, a module or a symbol, and write the operator
out as text for whoever debugs a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from torch.fx import Interpreter, Node
from torch.fx.immutable_collections import immutable_list
from torch.fx.node import Target

from safe_arm._compat.upstream import ExportPass, NodeMetadata, ProxyValue
from safe_arm.acceleration.shortcuts import shortcuts, taking

#: Shorter lists are not worth a look.
LONG = 8

_NUMBERS = frozenset((int, float, bool))


class Whole(list[Any]):
    """A list of numbers that nobody need take apart: torch's trees of values know ``list`` alone."""


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
            args = tuple(Whole(a) if _is_long(a) else a for a in args)
            kwargs = {
                name: Whole(a) if _is_long(a) else a for name, a in kwargs.items()
            }
        return stock(self, kind, target, args, kwargs, meta)

    return _fx


def unpacking(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an interpreter's call: operators get plain lists."""

    def call_function(
        self: Interpreter,
        target: Target,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        if shortcuts().whole_constants:
            args = tuple(list(a) if type(a) is Whole else a for a in args)
            kwargs = {
                name: list(a) if type(a) is Whole else a for name, a in kwargs.items()
            }
        return stock(self, target, args, kwargs)

    return call_function


def taken_whole(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the making of a node's argument: a whole list is one."""

    def create_arg(self: ExportPass.ExportTracer, a: Any) -> Any:
        return (
            list(a)
            if shortcuts().whole_constants and (type(a) is Whole or _is_long(a))
            else stock(self, a)
        )

    return create_arg


def _is_long(argument: object) -> bool:
    if not isinstance(argument, list) or type(argument) not in (list, immutable_list):
        return False
    return len(argument) > LONG and _NUMBERS.issuperset(map(type, argument))


def unwritten(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the re-trace of a node: its long lists are not written out as text."""

    def run_node(self: Interpreter, n: Node) -> Any:
        if not (shortcuts().whole_constants and any(map(_is_long, n.args))):
            return stock(self, n)
        # What stock does, with a name where it puts the operator's whole text.
        self.node, self.callback.node_debug_str = n, n.name  # type: ignore[attr-defined]
        return Interpreter.run_node(self, n)

    return run_node


#: Where ``_fx`` is defined, and the interpreter that it is called from.
BASE: type = next(cls for cls in ExportPass.__mro__ if "_fx" in vars(cls))
INTERPRETER: type = vars(BASE)["ExportInterpreter"]
