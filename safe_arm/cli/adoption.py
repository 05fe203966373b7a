"""Turns every stock Arm partitioner and quantiser that a script creates into safe_arm's, however it names the class."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from safe_arm._compat.marker import is_ours
from safe_arm._compat.upstream import TOSAPartitioner
from safe_arm.recipes import PARTITIONERS, QUANTIZERS
from safe_arm.safe_partitioner import SafeArmPartitioner

#: The class that instances of each stock class become.
_OURS: dict[type, type] = {
    **dict.fromkeys(PARTITIONERS, SafeArmPartitioner),
    **QUANTIZERS,
}


@dataclass
class Adopted:
    """The partitioners that a script created.

    Attributes:
        partitioners: safe_arm's, including those that the script created as such.
        left_stock: names of the classes of those that partitioned a program without safe_arm.
    """

    partitioners: list[SafeArmPartitioner] = field(default_factory=list)
    left_stock: dict[str, None] = field(default_factory=dict)


@contextmanager
def adopting(options: dict[str, Any]) -> Iterator[Adopted]:
    """Change the constructors of stock's classes while the block runs, so that their instances become safe_arm's.

    An import by name, an alias, a factory and a subclass that calls a stock constructor all end there.

    Args:
        options: keyword arguments of ``SafeArmPartitioner``.
    """
    adopted = Adopted()
    with ExitStack() as stack:
        for stock in _OURS:
            constructor = _constructor(stock, adopted, options)
            stack.enter_context(_replaced(stock, "__init__", constructor))
        partition = TOSAPartitioner.partition

        def noted(self: TOSAPartitioner, *args: Any, **kwargs: Any) -> Any:
            if not (isinstance(self, SafeArmPartitioner) and is_ours(self)):
                adopted.left_stock[type(self).__name__] = None
            return partition(self, *args, **kwargs)

        stack.enter_context(_replaced(TOSAPartitioner, "partition", noted))
        yield adopted


@contextmanager
def _replaced(
    owner: type, name: str, replacement: Callable[..., Any]
) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, functools.update_wrapper(replacement, before))
    try:
        yield
    finally:
        setattr(owner, name, before)


def _constructor(
    stock: type, adopted: Adopted, options: dict[str, Any]
) -> Callable[..., None]:
    construct = vars(stock)["__init__"]
    ours = _OURS[stock]
    own_options = options if ours is SafeArmPartitioner else {}

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(self, tuple(_OURS.values())):
            construct(self, *args, **kwargs)
            if isinstance(self, SafeArmPartitioner):
                adopted.partitioners.append(self)
            return
        self.__class__ = _joined(type(self), ours, stock)
        # It calls the constructor of its stock base, which is this one.
        ours.__init__(self, *args, **kwargs, **own_options)  # type: ignore[misc]

    return init


def _joined(own: type, ours: type, stock: type) -> type:
    """Return our class for an instance of a stock class, or one between a user's subclass and its stock base."""
    if own is stock:
        return ours
    base = type(ours.__name__, (ours, stock), {})
    return type(own.__name__, (own, base), {"__module__": own.__module__})
