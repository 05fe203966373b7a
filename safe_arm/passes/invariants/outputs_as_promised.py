"""A delegate gives its caller the shapes and dtypes the caller's graph was traced with."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm.passes.invariants.domains_meet import outputs_of
from safe_arm.passes.invariants.watch import Invariant, broken

#: Writes outputs the way they lie in memory, so that a channels-last one changes its shape.
_LAYOUT = "NormalizeDelegateIOLayoutPass"
#: TOSA has no unsigned tensors and no 64-bit ones: the same bytes, or values that fit, under another name.
_STANDS_FOR = {torch.uint8: {torch.int8}, torch.int64: {torch.int32}}


class OutputsAsPromised(Invariant):
    """The number, shapes and, at the end, dtypes of a delegate's outputs are those of the graph it was made from."""

    name = "outputs-as-promised"

    def begin(self, program: ExportedProgram, graph_module: GraphModule) -> None:
        # The backend gives a branch's results the values of what reads its operator; none reads a condition.
        known = graph_module is program.graph_module
        self._promised = [
            _kind(value) if known else (None, None)
            for value in outputs_of(graph_module)
        ]
        self._dtypes = [dtype for _, dtype in self._promised]
        self._since: dict[int, str] = {}

    def after(
        self, pass_name: str, graph_module: GraphModule, program: ExportedProgram | None
    ) -> None:
        outputs = outputs_of(graph_module)
        if pass_name == _LAYOUT and len(outputs) == len(self._promised):
            self._promised = [
                (_kind(node)[0], dtype)
                for node, (_, dtype) in zip(outputs, self._promised, strict=True)
            ]
        if len(outputs) != len(self._promised):
            node, promised = graph_module.graph.output_node(), len(self._promised)
            broken(node, f"gives {len(outputs)} values, {promised} were promised")
        for index, (node, (shape, _)) in enumerate(
            zip(outputs, self._promised, strict=True)
        ):
            actual, dtype = _kind(node)
            # TOSA graphs of some profiles have no rank 0.
            if (
                shape is not None
                and actual is not None
                and (shape or (1,)) != (actual or (1,))
            ):
                broken(
                    node, f"has shape {list(actual)}, and {list(shape)} was promised"
                )
            if dtype != self._dtypes[index]:
                self._dtypes[index], self._since[index] = dtype, pass_name

    def finish(self, graph_module: GraphModule) -> None:
        """In the middle of the pipeline a quantised operator may be traced as a float one; here dtypes are real."""
        for index, (node, (_, dtype)) in enumerate(
            zip(outputs_of(graph_module), self._promised, strict=True)
        ):
            _, actual = _kind(node)
            if dtype is not None and actual not in {dtype, *_STANDS_FOR.get(dtype, ())}:
                broken(
                    node,
                    f"is {actual}, and {dtype} was promised",
                    self._since.get(index, ""),
                )


def _kind(node: Node) -> tuple[tuple[int, ...] | None, torch.dtype | None]:
    """Return the shape, None if it is not all numbers, and the dtype of a node's value."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None, None
    static = all(isinstance(size, int) for size in value.shape)
    return tuple(value.shape) if static else None, value.dtype
