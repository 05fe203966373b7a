"""Contain exceptions of foreign code: a fatal one propagates, any other becomes a value."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from traceback import walk_tb
from types import FrameType
from typing import ParamSpec, TypeVar

import torch

from safe_arm.core.errors import UsageError

#: Exceptions that must reach the user, wherever among the causes of another they stand; nothing else ends an export.
FATAL = (KeyboardInterrupt, MemoryError, torch.OutOfMemoryError, UsageError)

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


@dataclass(frozen=True)
class Caught:
    """An exception that was contained.

    Attributes:
        causes: it and what it was raised from or during, the root first, as far as it happened in the call.
    """

    causes: tuple[BaseException, ...]

    @property
    def root(self) -> BaseException:
        """The exception that was raised first."""
        return self.causes[0]

    @property
    def reason(self) -> str:
        """One line that says what the root was, with the next one if the sentence goes on there."""
        name = type(self.root).__name__
        lines = str(self.root).strip().splitlines()
        if not lines:
            return name
        first, following = (*lines, "")[:2]
        if following[:1].islower():
            first = f"{first} {following}"
        return f"{name}: {first}"

    @property
    def frames(self) -> list[FrameType]:
        """The frames of all tracebacks: the root's before its wrappers', inner frames before outer ones."""
        frames: list[FrameType] = []
        for cause in self.causes:
            own = [frame for frame, _ in walk_tb(cause.__traceback__)]
            frames += own[::-1]
        return frames

    def first(self, kind: type[E]) -> E | None:
        """Return the first cause of a class; None if there is none."""
        for cause in self.causes:
            if isinstance(cause, kind):
                return cause
        return None


def attempted(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Caught:
    """Return what a call returns, or the exception that it raises; Vela's ``sys.exit`` is one like any other.

    Raises:
        KeyboardInterrupt, MemoryError, torch.OutOfMemoryError, UsageError: one of them is among the causes.
    """
    handled = sys.exc_info()[1]  # by the caller, whose business it is
    try:
        return call(*args, **kwargs)
    except (Exception, SystemExit) as error:
        causes = _chain(error, handled)
        for cause in causes:
            if isinstance(cause, FATAL):
                raise cause from None
        return Caught(causes)


def _chain(
    error: BaseException, end: BaseException | None
) -> tuple[BaseException, ...]:
    """Follow causes as Python prints them, up to what was being handled before; ``from None`` ends them too."""
    causes: dict[int, BaseException] = {}
    link: BaseException | None = error
    while link is not None and link is not end and id(link) not in causes:
        causes[id(link)] = link
        # Setting a cause suppresses the context.
        link = link.__cause__ if link.__suppress_context__ else link.__context__
    return tuple(reversed(causes.values()))
