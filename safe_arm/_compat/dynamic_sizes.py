"""The dynamic sizes of a program: other numbers for them, and how checks and passes are prevented from fixing them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from torch import SymInt
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from safe_arm.core.errors import SafeArmError

#: The beginning of torch's message about a guard (torch/fx/experimental/symbolic_shapes.py).
_REFUSED = "Guard attempted while ShapeEnv guards are frozen: "


class DynamicSizeError(SafeArmError):
    """A decision about a program would hold for some of its dynamic sizes only."""


def fake_mode_of(graph_module: GraphModule) -> FakeTensorMode | None:
    """Return the mode of a graph's fake values; None if it has none."""
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return None


def environment_of(graph_module: GraphModule) -> ShapeEnv | None:
    """Return the environment of a graph's dynamic sizes; None if it has none."""
    mode = fake_mode_of(graph_module)
    return None if mode is None else mode.shape_env


def another_size(size: SymInt) -> int:
    """Return a number that a dynamic size may have: another than in the example, if its range has one."""
    environment = size.node.shape_env
    examples = getattr(environment, "backed_var_to_val", None) or environment.var_to_val
    values = {}
    for symbol in size.node.expr.free_symbols:
        example = int(examples[symbol])
        bounds = environment.bound_sympy(symbol)
        lower = example - 1 if example > bounds.lower else example
        values[symbol] = example + 1 if example < bounds.upper else lower
    return int(size.node.expr.xreplace(values))


@contextmanager
def sizes_kept(environment: ShapeEnv | None) -> Iterator[None]:
    """Raise on a comparison whose result depends on a dynamic size, while the block runs.

    ``MaxPool2dSupported`` of 1.5.1 makes one (``H_out == W_out == 1``), and from then on the program accepts the
    example's size only. Torch has a way to forbid that from 2.11 on.

    Raises:
        DynamicSizeError: a dynamic size was compared; the message has the comparison.
    """
    forbidden = getattr(environment, "error_on_new_guards", nullcontext)
    try:
        with forbidden():
            yield
    except Exception as error:
        if _REFUSED not in str(error):
            raise
        guard = str(error).partition(_REFUSED)[2]
        raise DynamicSizeError(f"it would fix a dynamic size: {guard}") from None
