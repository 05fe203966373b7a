"""Functions whose calls are noted and that go on as ever."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def raising(error: BaseException | type[BaseException]) -> Callable[..., Any]:
    """Return a function that raises, whatever it is called with."""

    def function(*args: Any, **kwargs: Any) -> Any:
        raise error

    return function


def noted(monkeypatch, owner: Any, name: str, note=lambda *args, **_: args) -> list[Any]:
    """Note the calls of a function from now on.

    Args:
        monkeypatch: puts the function back.
        owner: the module or class that has it.
        name: its name.
        note: what is noted of the arguments of a call; all of them if not said.

    Returns:
        The notes, in order.
    """
    notes = []
    real = getattr(owner, name)

    def noting(*args, **kwargs):
        notes.append(note(*args, **kwargs))
        return real(*args, **kwargs)

    static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    monkeypatch.setattr(owner, name, staticmethod(noting) if static else noting)
    return notes
