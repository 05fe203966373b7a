"""Join our partitioner with the stock class of a compile spec, so that ``isinstance`` checks keep working."""

from __future__ import annotations

from typing import TypeVar

from safe_arm._compat.upstream import (
    EthosUCompileSpec,
    EthosUPartitioner,
    TosaCompileSpec,
    TOSAPartitioner,
    VgfCompileSpec,
    VgfPartitioner,
)
from safe_arm.core.errors import UsageError

P = TypeVar("P", bound=TOSAPartitioner)


class _PlainTOSAPartitioner(TOSAPartitioner):
    """The stock TOSA partitioner, told apart from its VGF and Ethos-U subclasses."""


_OF_SPEC: tuple[tuple[type, type[TOSAPartitioner]], ...] = (
    (VgfCompileSpec, VgfPartitioner),
    (EthosUCompileSpec, EthosUPartitioner),
    (TosaCompileSpec, _PlainTOSAPartitioner),
)
_ACCEPTED = (
    'accepted: VgfCompileSpec(), EthosUCompileSpec("ethos-u55-128") or another accelerator, '
    'TosaCompileSpec("TOSA-1.0+INT") or another profile'
)
#: The joined classes, by what each is joined of.
_JOINED: dict[tuple[type, type], type] = {}


def stock_class(cls: type) -> type[TOSAPartitioner] | None:
    """Return the stock class, of those of the compile specs, that a class inherits from; None if there is none."""
    for _, stock in _OF_SPEC:
        if issubclass(cls, stock):
            return stock
    return None


def with_stock_class(cls: type[P], compile_spec: object) -> type[P]:
    """Return a class joined with the stock partitioner of a compile spec; as it is if it inherits from one.

    Raises:
        UsageError: there is no partitioner for such a spec.
    """
    if stock_class(cls) is not None:
        return cls
    for spec_class, stock in _OF_SPEC:
        if isinstance(compile_spec, spec_class):
            return _joined(cls, stock)
    kind = type(compile_spec).__name__
    if isinstance(compile_spec, type):
        kind = "class"
    raise UsageError(f"compile spec {compile_spec!r} is a {kind}; {_ACCEPTED}")


def own_class(cls: type) -> type:
    """Return the class that was joined with a stock class, which has its name; any other class as it is."""
    for (own, _), joined in _JOINED.items():
        if joined is cls:
            return own
    return cls


def _joined(cls: type[P], stock: type[TOSAPartitioner]) -> type[P]:
    key = (cls, stock)
    if key not in _JOINED:
        members = {"__doc__": cls.__doc__, "__module__": cls.__module__}
        _JOINED[key] = type(cls.__name__, (cls, stock), members)
    joined: type[P] = _JOINED[key]
    return joined
