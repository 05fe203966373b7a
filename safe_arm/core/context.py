"""Values that hold in one thread of control and for the time of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def bound(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give a context variable a value, in this thread, while the block runs."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
