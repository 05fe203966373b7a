"""Give every hardtanh its bounds back: export drops arguments that equal the schema's defaults."""

from __future__ import annotations

from typing import ClassVar

from torch.fx import GraphModule

from safe_arm._compat.upstream import ArmPass, ConvertToClampPass, PassResult
from safe_arm.core.hardtanh import complete, incomplete_hardtanhs
from safe_arm.passes.applied import applied


class CompleteHardtanhArgumentsPass(ArmPass):
    """Completes hardtanh arguments before any stock pass reads ``args[1]`` and ``args[2]`` unconditionally.

    Four places do from 1.2 to 1.5: the check in the partitioner, FuseQuantizedActivationPass twice, ConvertToClampPass.
    """

    _passes_required_after: ClassVar[set[type]] = {ConvertToClampPass}

    def call(self, graph_module: GraphModule) -> PassResult:
        nodes = list(incomplete_hardtanhs(graph_module))
        for node in nodes:
            complete(node)
            applied(self, node)
        return PassResult(graph_module, bool(nodes))
