"""Nothing that is asked about a program, or made of it, may fix one of its dynamic sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from safe_arm.core.errors import SafeArmError

#: How torch begins to say that somebody asked for a guard (torch/fx/experimental/symbolic_shapes.py).
_REFUSED = "Guard attempted while ShapeEnv guards are frozen: "


class DynamicSizeError(SafeArmError):
    """A decision about a program would hold for some of its dynamic sizes only."""


def environment_of(graph_module: GraphModule) -> ShapeEnv | None:
    """Return what knows the dynamic sizes of a graph; None if it has none."""
    values = (node.meta.get("val") for node in graph_module.graph.nodes)
    return next(
        (
            value.fake_mode.shape_env
            for value in values
            if isinstance(value, FakeTensor)
        ),
        None,
    )


@contextmanager
def sizes_kept(environment: ShapeEnv | None) -> Iterator[None]:
    """Raise where somebody compares a dynamic size and the answer depends on it, while the block runs.

    ``MaxPool2dSupported`` of 1.5.1 does (``H_out == W_out == 1``), and from then on the program takes the example's
    size alone. Torch's own way to forbid that is there from torch 2.11 on.

    Raises:
        DynamicSizeError: says what was compared.
    """
    forbidden = getattr(environment, "error_on_new_guards", nullcontext)
    try:
        with forbidden():
            yield
    except Exception as error:
        if _REFUSED not in str(error):
            raise
        raise DynamicSizeError(
            f"it would fix a dynamic size: {str(error).partition(_REFUSED)[2]}"
        ) from None
