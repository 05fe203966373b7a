"""Check that a delegate gives its caller the shapes and dtypes the caller's graph was traced with."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm.passes.invariants.domains_meet import outputs_of
from safe_arm.passes.invariants.watch import Invariant, broken

#: The pass that lays outputs out as in memory, so that a channels-last one changes its shape.
_LAYOUT = "NormalizeDelegateIOLayoutPass"
#: TOSA has no unsigned tensors and no 64-bit ones: the same bytes, or values that fit, under another name.
_STANDS_FOR = {torch.uint8: torch.int8, torch.int64: torch.int32}
#: The shape and the dtype of a value, as far as they are known.
Kind = tuple[tuple[int, ...] | None, torch.dtype | None]


class OutputsAsPromised(Invariant):
    """The number, shapes and, at the end, dtypes of a delegate's outputs are those of the graph it was made from."""

    name = "outputs-as-promised"

    def begin(self, program: ExportedProgram, graph_module: GraphModule) -> None:
        # The backend gives a branch's results the values of what reads its operator; none reads a condition.
        outputs = outputs_of(graph_module)
        self._promised: list[Kind] = [(None, None)] * len(outputs)
        if graph_module is program.graph_module:
            self._promised = list(map(_kind, outputs))
        self._dtypes = [dtype for _, dtype in self._promised]
        self._since: dict[int, str] = {}

    def after(
        self, pass_name: str, graph_module: GraphModule, program: ExportedProgram | None
    ) -> None:
        outputs = outputs_of(graph_module)
        if len(outputs) != len(self._promised):
            node = graph_module.graph.output_node()
            promised = len(self._promised)
            broken(node, f"gives {len(outputs)} values, {promised} were promised")
        for index, node in enumerate(outputs):
            shape, dtype = self._promised[index]
            actual, actual_dtype = _kind(node)
            if pass_name == _LAYOUT:
                shape = actual
                self._promised[index] = shape, dtype
            if actual_dtype != self._dtypes[index]:
                self._dtypes[index] = actual_dtype
                self._since[index] = pass_name
            # TOSA graphs of some profiles have no rank 0.
            if shape is None or actual is None:
                continue
            if (shape or (1,)) == (actual or (1,)):
                continue
            broken(node, f"has shape {list(actual)}, and {list(shape)} was promised")

    def finish(self, graph_module: GraphModule) -> None:
        """Check the dtypes; in the middle of the pipeline a quantised operator may be traced as a float one."""
        outputs = outputs_of(graph_module)
        for index, (node, (_, dtype)) in enumerate(
            zip(outputs, self._promised, strict=True)
        ):
            _, actual = _kind(node)
            if dtype is None or actual in (dtype, _STANDS_FOR.get(dtype, dtype)):
                continue
            since = self._since.get(index, "")
            broken(node, f"is {actual}, and {dtype} was promised", since)


def _kind(node: Node) -> Kind:
    """Return the shape, None if it is not all numbers, and the dtype of a node's value."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None, None
    if all(isinstance(size, int) for size in value.shape):
        return tuple(value.shape), value.dtype
    return None, value.dtype
