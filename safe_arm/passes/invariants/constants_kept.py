"""Check that weights, biases and folded constants keep their values."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm.core.programs import held_names
from safe_arm.passes.invariants.watch import Invariant, broken

#: Passes that write to existing constants on purpose.
_REWRITE = frozenset(("FuseBatchNorm2dPass", "FoldScalarMulIntoConvPass"))


class ConstantsKept(Invariant):
    """A constant that is there before a pass has the same values after it, in whatever dtype."""

    name = "constants-kept"

    def begin(self, program: ExportedProgram, graph_module: GraphModule) -> None:
        # Branches are lowered one after the other, and the next may give another constant the same name.
        self._branch = graph_module is not program.graph_module
        self._seen = {} if self._branch else _constants(program)

    def after(
        self, pass_name: str, graph_module: GraphModule, program: ExportedProgram | None
    ) -> None:
        if program is None:
            return
        now = _constants(program)
        if self._branch:
            for name in list(now):
                if _reader(program, name, graph_module) is None:
                    del now[name]
        if pass_name not in _REWRITE:
            for name, (tensor, version) in now.items():
                before, seen = self._seen.get(name, (tensor, version))
                if (before is tensor and seen == version) or _equal(before, tensor):
                    continue
                node = _reader(program, name, graph_module)
                if node is not None:
                    broken(node, f"reads {name}, whose values have changed")
        self._seen = now


def _constants(program: ExportedProgram) -> dict[str, tuple[torch.Tensor, int]]:
    constants: dict[str, tuple[torch.Tensor, int]] = {}
    for name, tensor in (*program.state_dict.items(), *program.constants.items()):
        # A stock pass leaves a fake one beside a scalar buffer that is not persistent; nothing reads it.
        if isinstance(tensor, torch.Tensor) and not isinstance(tensor, FakeTensor):
            version = 0 if tensor.is_inference() else tensor._version
            constants[name] = tensor, version
    return constants


def _equal(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Tell whether another tensor holds the same values, whatever its dtype and shape."""
    if before is after or before.numel() != after.numel():
        return False
    return bool((before.reshape(-1) == after.reshape(-1)).all())


def _reader(
    program: ExportedProgram, name: str, graph_module: GraphModule
) -> Node | None:
    """Return an operator that reads a constant, None if none does."""
    held = held_names(program)
    for placeholder in graph_module.graph.find_nodes(op="placeholder"):
        if held.get(placeholder.name) == name and placeholder.users:
            return next(iter(placeholder.users))
    return None
