"""Wrappers that safe_arm puts into other packages: each is a value with its reason, and all or none are installed."""

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
        expires: the first ExecuTorch release with which it was not reviewed, such as ``1.7``.
        issue: the known issue it is for; empty if it is for none.
    """

    owner: type | ModuleType
    name: str
    wrap: Callable[[Any], Any]
    reason: str
    expires: str
    issue: str = ""


class Patches:
    """A set of patches that are installed and removed together."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._replaced: list[tuple[Patch, Any]] = []

    def install(self, patches: Iterable[Patch]) -> None:
        """Apply patches in order, a later one round an earlier one; do nothing if some are installed.

        Raises:
            AttributeError: an owner lacks the attribute. Whatever is raised, nothing stays installed.
        """
        with self._lock:
            if self._replaced:
                return
            try:
                for patch in patches:
                    replacement = _replacement(patch)
                    before = vars(patch.owner).get(patch.name, _ABSENT)
                    self._replaced.append((patch, before))
                    setattr(patch.owner, patch.name, replacement)
            except BaseException:
                self.uninstall()
                raise

    def uninstall(self) -> None:
        """Restore every owner's attribute, the last patch first; an inherited attribute is inherited again."""
        with self._lock:
            while self._replaced:
                patch, before = self._replaced.pop()
                if vars(patch.owner).get(patch.name, _ABSENT) is before:
                    continue  # It could not be set in the first place.
                if before is _ABSENT:
                    delattr(patch.owner, patch.name)
                else:
                    setattr(patch.owner, patch.name, before)


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
