"""Functions whose calls, and whose warnings, are noted and that go on as ever."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

from safe_arm.core.errors import DoubtfulInputWarning


def raising(error: BaseException | type[BaseException]) -> Callable[..., Any]:
    """Return a function that raises, whatever it is called with."""

    def function(*args: Any, **kwargs: Any) -> Any:
        raise error

    return function


def noted(monkeypatch, owner: Any, name: str, note=lambda *args, **_: args) -> list[Any]:
    """Return a list that gets what ``note`` makes of the arguments of each call of a module's or class's function."""
    notes = []
    real = getattr(owner, name)

    def noting(*args, **kwargs):
        notes.append(note(*args, **kwargs))
        return real(*args, **kwargs)

    static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    monkeypatch.setattr(owner, name, staticmethod(noting) if static else noting)
    return notes


def doubts(function: Callable[..., Any], *args: Any, **how: Any) -> tuple[Any, list[str]]:
    """What a function returns, and the doubtful inputs that it warns about."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*args, **how)
    return result, [str(each.message) for each in caught if issubclass(each.category, DoubtfulInputWarning)]
