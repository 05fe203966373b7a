"""The listener of a partitioner: hears what it tries, proves and ships."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from safe_arm.partitioner.lowering import Cut, Lowered

#: Is entered for the time of several alike things; its value is called after each of them.
Counting = AbstractContextManager[Callable[[], None]]


class Listener:
    """Hears what a partitioner does while it does it. This one does nothing: override what is of interest."""

    def trying(self, delegates: int) -> Counting:
        """Return what is entered while the delegates of one proposal are lowered on trial.

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
        """Return what is entered while one delegate is verified.

        Args:
            macs: multiply-accumulates of the delegate.
            seconds: an estimate of the time that the verification takes.
            runs: the number of sets of inputs.
        """
        return nullcontext(lambda: None)

    def shipped(self, method: str, delegates: Sequence[tuple[Cut, Lowered]]) -> None:
        """Take the delegates of one method that ship, and their lowerings."""
