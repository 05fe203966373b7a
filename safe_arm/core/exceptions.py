"""What becomes of an exception that other people's code raises: what is fatal goes on, all else becomes a value."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from traceback import walk_tb
from types import FrameType
from typing import ParamSpec, TypeVar

import torch

from safe_arm.core.errors import UsageError

#: What must reach the user, wherever among the causes of an exception it stands; nothing else ends an export.
FATAL = (KeyboardInterrupt, MemoryError, torch.OutOfMemoryError, UsageError)

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Caught:
    """An exception that was contained.

    Attributes:
        causes: it and what it was raised from or during, the root first, as far as it happened in the call.
    """

    causes: tuple[BaseException, ...]

    @property
    def root(self) -> BaseException:
        """Where it began."""
        return self.causes[0]

    @property
    def reason(self) -> str:
        """One line that says what the root was."""
        text = next(iter(str(self.root).strip().splitlines()), "")
        return (
            f"{type(self.root).__name__}: {text}" if text else type(self.root).__name__
        )


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
        fatal = next((cause for cause in causes if isinstance(cause, FATAL)), None)
        if fatal is not None:
            raise fatal from None
        return Caught(causes)


def frames(error: BaseException) -> list[FrameType]:
    """Return the frames of an exception's own traceback, the innermost first."""
    return [frame for frame, _ in walk_tb(error.__traceback__)][::-1]


def _chain(
    error: BaseException, end: BaseException | None
) -> tuple[BaseException, ...]:
    """Follow causes as Python prints them, up to what was being handled before; ``from None`` ends them too."""
    found: list[BaseException] = []
    link: BaseException | None = error
    while (
        link is not None and link is not end and not any(link is each for each in found)
    ):
        found.append(link)
        link = link.__cause__ or (
            None if link.__suppress_context__ else link.__context__
        )
    return tuple(found[::-1])
