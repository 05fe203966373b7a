"""Check that a write by constant indices names each place once: TOSA does not define SCATTER on repeated indices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import get_param_tensor, is_param_node
from safe_arm.core.calls import called
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import op_name
from safe_arm.passes.invariants.watch import Invariant, broken

#: The pass that rewrites ``index_put`` as a SCATTER.
REWRITE = "RewriteIndexPutPass"


class PlacesWrittenOnce(Invariant):
    """Constant indices of ``index_put`` name no place twice; otherwise the device chooses which value stays."""

    name = "places-written-once"

    def begin(self, program: ExportedProgram, graph_module: GraphModule) -> None:
        self._program = program
        self._twice: list[Node] = []

    def before(self, pass_name: str, graph_module: GraphModule) -> None:
        if pass_name == REWRITE:
            self._twice = []
            for node in graph_module.graph.nodes:
                if op_name(node) == "aten::index_put" and self._repeats(node):
                    self._twice.append(node)

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
        indices: Any = node.args[1]
        shape = node.args[0].meta["val"].shape  # type: ignore[union-attr]
        places: list[Tensor] = []
        for size, index in zip(shape, indices, strict=False):
            if not isinstance(index, Node):
                continue
            value = self._value(index)
            if value is None or value.dtype == torch.bool:
                return False
            if not isinstance(size, int):
                return False
            places.append(value.long() % size)
        if not places:
            return False
        flat = [place.reshape(-1) for place in torch.broadcast_tensors(*places)]
        rows = torch.stack(flat)
        return rows.unique(dim=1).shape[1] < rows.shape[1]

    def _value(self, node: Node) -> Tensor | None:
        """Compute the value of a node that reads constants alone; None if it reads anything else."""
        if is_param_node(self._program, node):
            return get_param_tensor(self._program, node)
        if node.op != "call_function":
            return None
        values: dict[Node, Tensor] = {}
        for source in node.all_input_nodes:
            value = self._value(source)
            if value is None:
                return None
            values[source] = value
        result = attempted(called, node, values.__getitem__)
        if isinstance(result, Caught):
            return None
        return result
