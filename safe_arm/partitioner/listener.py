"""The listener of a partitioner: hears what it tries, proves and ships."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from safe_arm.partitioner.lowering import Cut, Lowered

#: Is entered for the time of several alike things; its value is called after each of them.
Counting = AbstractContextManager[Callable[[], None]]


class Listener:
    """Receives the events of a partitioner. This base class ignores them: override the methods that you need."""

    def trying(self, delegates: int) -> Counting:
        """Return a context manager for the trial lowerings of one proposal.

        Args:
            delegates: the number of delegates.
        """
        return nullcontext(lambda: None)

    def proving(
        self,
        macs: int,
        seconds: float,
        runs: int,
    ) -> Counting:
        """Return a context manager for the verification of one delegate.

        Args:
            macs: multiply-accumulates of the delegate.
            seconds: an estimate of the time that the verification takes.
            runs: the number of sets of inputs.
        """
        return nullcontext(lambda: None)

    def shipped(self, method: str, delegates: Sequence[tuple[Cut, Lowered]]) -> None:
        """Take the delegates of one method that ship, and their lowerings."""
