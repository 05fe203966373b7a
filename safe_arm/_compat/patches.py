"""Wrappers that safe_arm puts into other packages: each a value with its reason, installed all or none."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

_ABSENT = object()
#: The release whose arrival asks of every patch whether it is still needed: a test fails once that release is tested.
REVIEW = "1.6"


@dataclass(frozen=True)
class Patch:
    """One attribute of another package that is replaced while safe_arm is installed.

    Attributes:
        owner: the class or module that has the attribute.
        name: of the attribute.
        wrap: given the stock value, for a static or class method its function, returns what takes its place.
        reason: why, in one sentence.
        expires: the first ExecuTorch release for which it was not checked that it is still needed, such as ``1.7``.
        issue: the known issue it is for; empty if it is for none.
    """

    owner: type | ModuleType
    name: str
    wrap: Callable[[Any], Any]
    reason: str
    expires: str
    issue: str = ""


class Patches:
    """Installs patches, all of them or none, and takes them off again."""

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
                    self._replaced.append(
                        (patch, vars(patch.owner).get(patch.name, _ABSENT))
                    )
                    setattr(patch.owner, patch.name, replacement)
            except BaseException:
                self.uninstall()
                raise

    def uninstall(self) -> None:
        """Give every owner back what it had, the last patch first; an inherited attribute is inherited again."""
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
        return type(stock)(
            functools.update_wrapper(patch.wrap(stock.__func__), stock.__func__)
        )
    wrapped = patch.wrap(stock)
    if isinstance(stock, FunctionType):
        functools.update_wrapper(wrapped, stock)
    return wrapped
