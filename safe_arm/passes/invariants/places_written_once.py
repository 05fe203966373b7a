"""A write by constant indices goes to each place once: TOSA's SCATTER is not defined on indices that repeat."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import get_param_tensor, is_param_node
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import op_name
from safe_arm.passes.invariants.watch import Invariant, broken

#: Writes ``index_put`` as a SCATTER.
REWRITE = "RewriteIndexPutPass"


class PlacesWrittenOnce(Invariant):
    """Constant indices of ``index_put`` name no place twice; which of the values stays is up to the device then."""

    name = "places-written-once"

    def begin(self, program: ExportedProgram, graph_module: GraphModule) -> None:
        self._program = program
        self._twice: list[Node] = []

    def before(self, pass_name: str, graph_module: GraphModule) -> None:
        if pass_name == REWRITE:
            writes = [
                node
                for node in graph_module.graph.nodes
                if op_name(node) == "aten::index_put"
            ]
            self._twice = [node for node in writes if self._repeats(node)]

    def after(
        self, pass_name: str, graph_module: GraphModule, program: ExportedProgram | None
    ) -> None:
        if pass_name == REWRITE and self._twice:
            broken(
                self._twice[0],
                "writes to one place twice, which TOSA's SCATTER does not define",
            )

    def _repeats(self, node: Node) -> bool:
        """Tell whether the indices of a write are constants and name a place twice."""
        given: Any = node.args[1]
        shape = node.args[0].meta["val"].shape  # type: ignore[union-attr]
        values = {
            dim: self._value(index)
            for dim, index in enumerate(given)
            if isinstance(index, Node)
        }
        known = [
            (dim, value)
            for dim, value in values.items()
            if value is not None and value.dtype != torch.bool
        ]
        if not known or len(known) < len(values):
            return False
        if not all(isinstance(shape[dim], int) for dim, _ in known):
            return False
        places = torch.broadcast_tensors(
            *(value.long() % shape[dim] for dim, value in known)
        )
        rows = torch.stack([place.reshape(-1) for place in places])
        return rows.unique(dim=1).shape[1] < rows.shape[1]

    def _value(self, node: Node) -> Tensor | None:
        """Compute a node from constants alone; None if it reads anything else."""
        if is_param_node(self._program, node):
            return get_param_tensor(self._program, node)
        if node.op != "call_function":
            return None
        values = {source: self._value(source) for source in node.all_input_nodes}
        if any(value is None for value in values.values()):
            return None
        args, kwargs = torch.fx.node.map_arg(
            (node.args, node.kwargs), values.__getitem__
        )
        result = attempted(node.target, *args, **kwargs)  # type: ignore[arg-type]
        return None if isinstance(result, Caught) else result
