"""A hook on the models that torchao prepares or converts, for any quantiser."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from torch.fx import GraphModule

from safe_arm._compat.patches import INSTALLED, Patch


def watch_models(finished: Callable[[GraphModule], None]) -> None:
    """Let a function see each model that ``prepare_pt2e`` or ``convert_pt2e`` is about to return. Twice is once.

    Args:
        finished: called with the model; it recognises ours by entries of ``model.meta``, which torchao carries from the
            float graph to the converted one.
    """
    owner = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")

    def wrap(stock: Callable[..., Any]) -> Callable[..., Any]:
        def seen(model: GraphModule) -> Any:
            result = stock(model)
            finished(model)
            return result

        return seen

    name = "_disallow_eval_train"  # The last function that both call.
    reason = "What calibration shows the float net is compared with what conversion makes of it."
    if hasattr(owner, name):
        INSTALLED.install([Patch(owner, name, wrap, reason)])
