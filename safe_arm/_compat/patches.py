"""Wrappers that safe_arm puts into other packages: each a value with its reason; a list is installed whole or not."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

_ABSENT = object()
#: The release with which every patch is reviewed: a test fails once that release is tested.
REVIEW = "1.6"


@dataclass(frozen=True)
class Patch:
    """One attribute of another package that is replaced while safe_arm is installed.

    Attributes:
        owner: the class or module that has the attribute.
        name: of the attribute.
        wrap: returns the replacement of the stock value, which for a static or class method is its function.
        reason: the reason for it, in one sentence.
        issue: the known issue it is for; empty if it is for none.
    """

    owner: type | ModuleType
    name: str
    wrap: Callable[[Any], Any]
    reason: str
    issue: str = ""


class Patches:
    """The patches that are installed."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._replaced: list[tuple[Patch, Any]] = []

    def install(self, patches: Iterable[Patch]) -> None:
        """Apply patches in order, a later one round an earlier one, but for those that are installed.

        Raises:
            AttributeError: an owner lacks the attribute. Whatever is raised, none of these patches stays installed.
        """
        with self._lock:
            before = len(self._replaced)
            known = {(patch.owner, patch.name) for patch, _ in self._replaced}
            try:
                for patch in patches:
                    if (patch.owner, patch.name) in known:
                        continue
                    replacement = _replacement(patch)
                    stock = vars(patch.owner).get(patch.name, _ABSENT)
                    self._replaced.append((patch, stock))
                    setattr(patch.owner, patch.name, replacement)
            except BaseException:
                self._remove_all_but(before)
                raise

    def uninstall(self) -> None:
        """Restore every owner's attribute, the last patch first; an inherited attribute is inherited again."""
        with self._lock:
            self._remove_all_but(0)

    def _remove_all_but(self, first: int) -> None:
        while len(self._replaced) > first:
            patch, before = self._replaced.pop()
            if vars(patch.owner).get(patch.name, _ABSENT) is before:
                continue  # It could not be set in the first place.
            if before is _ABSENT:
                delattr(patch.owner, patch.name)
            else:
                setattr(patch.owner, patch.name, before)


#: The patches of this process, torchao's among them; a quantiser installs fewer than a partitioner.
INSTALLED = Patches()


def _replacement(patch: Patch) -> Any:
    stock = inspect.getattr_static(patch.owner, patch.name)
    if isinstance(stock, (staticmethod, classmethod)):
        function = stock.__func__
        wrapped = functools.update_wrapper(patch.wrap(function), function)
        return type(stock)(wrapped)
    wrapped = patch.wrap(stock)
    if isinstance(stock, FunctionType):
        functools.update_wrapper(wrapped, stock)
    return wrapped
