"""Run delegates in the TOSA reference model and compare with the quantised graph, in codes.

The package is also the public function: ``safe_arm.verify(manager, samples)`` is ``safe_arm.verify.whole.verify``.
"""

import sys
import types
from typing import Any


class _Callable(types.ModuleType):
    """A package that can be called; its name is the function's, and other modules' names begin with it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from safe_arm.verify.whole import verify

        return verify(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
