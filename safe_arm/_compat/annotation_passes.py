"""The stock passes before annotation, one at a time: the graph after each, and the pipeline without some of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from executorch.backends.arm import _passes
from executorch.backends.arm.quantizer import arm_quantizer
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassResult

from safe_arm._compat.upstream import ArmPassManager

After = Callable[[str, GraphModule], None]
_lock = threading.Lock()


class _Watched(ArmPassManager):
    """The stock manager with a hook after each pass.

    Attributes:
        after: called with the name of the pass's class and the graph.
        left_out: names of passes that are not run.
    """

    after: After
    left_out: Collection[str]

    def add_pass(self, pipeline_pass: Any) -> None:
        """Add a pass, and behind it one that calls the hook."""
        name = type(pipeline_pass).__name__
        if name in self.left_out:
            return
        super().add_pass(pipeline_pass)

        def show(module: GraphModule) -> PassResult:
            self.after(name, module)
            return PassResult(module, False)

        super().add_pass(show)


@contextmanager
def watched_passes(
    after: After = lambda name, module: None, left_out: Collection[str] = ()
) -> Iterator[None]:
    """Call a function after each pass before annotation in this thread's quantisers, while the block runs.

    Other threads get stock's pipeline meanwhile.

    Args:
        after: called after each pass with the name of its class and the graph; an exception ends the pipeline.
        left_out: names of passes that are not run.
    """
    # In 1.2 the quantisers take the pass manager from the module of the passes.
    has_own = hasattr(arm_quantizer, "ArmPassManager")
    owner: Any = arm_quantizer if has_own else _passes
    stock: Any = owner.ArmPassManager
    thread = threading.get_ident()

    def manager(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            return stock(*args, **kwargs)
        watched = _Watched(*args, **kwargs)
        watched.after = after
        watched.left_out = left_out
        return watched

    with _lock:
        owner.ArmPassManager = manager
        try:
            yield
        finally:
            owner.ArmPassManager = stock
