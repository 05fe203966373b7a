"""Run a lowered program: its delegates by a function, the rest eagerly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import SymInt, Tensor
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node
from torch.utils._pytree import tree_leaves, tree_map

from safe_arm.core.errors import SafeArmError
from safe_arm.core.programs import placeholder_values
from safe_arm.verification.concrete_sizes import Sizes, at, sizes_of, symbols, value_at
from safe_arm.verification.delegate import Delegate
from safe_arm.verification.known_shapes import known_shapes

if TYPE_CHECKING:
    from executorch.exir.lowered_backend_module import LoweredBackendModule

#: Runs a delegate; takes the name of its module, the module, and the other arguments of the call.
RunsDelegate = Callable[[str, "LoweredBackendModule", list[Tensor]], Sequence[Tensor]]


class _Lowered(Interpreter):
    """An interpreter that runs a lowered graph eagerly, and its ``executorch_call_delegate`` nodes by a function.

    A size that a pass wrote into the graph as an expression (known issue C-cat-of-nothing) is that of the inputs.
    """

    run_delegate: RunsDelegate
    sizes: Callable[[], Sizes]

    def fetch_args_kwargs_from_env(
        self, n: Node
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        found = super().fetch_args_kwargs_from_env(n)
        if not any(isinstance(leaf, SymInt) for leaf in tree_leaves(found)):
            return found
        sizes = self.sizes()
        return tree_map(partial(value_at, sizes=sizes), found)

    def run_node(self, n: Node) -> Any:
        if getattr(n.target, "__name__", "") != "executorch_call_delegate":
            return super().run_node(n)
        lowered, *inputs = self.fetch_args_kwargs_from_env(n)[0]
        return self.run_delegate(str(n.args[0]), lowered, inputs)


def run_with(
    run_delegate: RunsDelegate, program: ExportedProgram, inputs: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Run a lowered edge program eagerly, its delegates by a function.

    Args:
        run_delegate: runs one.
        program: of an ``EdgeProgramManager``.
        inputs: the user's inputs.
    """
    interpreter = _Lowered(program.graph_module)
    interpreter.run_delegate = run_delegate
    interpreter.sizes = lambda: sizes_of(program, [tensor.shape for tensor in inputs])
    values = placeholder_values(
        program, {**program.constants, **program.state_dict}, inputs
    )
    with torch.no_grad():
        outputs = interpreter.run(*values.values())
    return tuple(leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor))


def delegate_of(lowered: LoweredBackendModule, inputs: Sequence[Tensor]) -> Delegate:
    """Return a delegate of a lowered program, at the sizes of some inputs.

    Raises:
        SafeArmError: it is not a TOSA one.
        UnknownSizeError: its sizes are dynamic, and it was lowered in another process, or by stock.
    """
    if lowered.backend_id != "TOSABackend":
        raise SafeArmError(
            f"only TOSA delegates run in the reference model, this one is for {lowered.backend_id}"
        )
    program = lowered.original_module
    state = {**program.constants, **program.state_dict}
    flatbuffer = lowered.processed_bytes
    delegate = Delegate(
        flatbuffer, program, state, {}, True, known_shapes(flatbuffer, symbols(program))
    )
    return at(delegate, sizes_of(program, [tensor.shape for tensor in inputs]))
