"""The base class of corrective passes, and the note of where they make a difference."""

from __future__ import annotations

from typing import ClassVar

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import ArmPass, PassResult
from safe_arm.core.lowering_record import current_lowering
from safe_arm.core.origins import origin

#: The attribute of a pass that holds the correction it belongs to.
CORRECTION = "safe_arm_correction"


class CorrectivePass(ArmPass):
    """A pass that joins the stock pipeline and needs no other pass behind it; most correct one node after the other."""

    _passes_required_after: ClassVar[set[type]] = set()

    def call(self, graph_module: GraphModule) -> PassResult:
        """Correct each node, and trace the graph again if that has changed it."""
        modified = False
        for node in list(graph_module.graph.nodes):
            if self.correct(node):
                applied(self, node)
                modified = True
        return self.retraced(graph_module, modified)

    def correct(self, node: Node) -> bool:
        """Change the graph at a node if that needs it, and tell whether it did."""
        raise NotImplementedError

    def retraced(self, graph_module: GraphModule, modified: bool) -> PassResult:
        """Return the result of the pass; a graph that it has changed is traced again."""
        if modified:
            graph_module = ArmPass.call(self, graph_module).graph_module
        return PassResult(graph_module, modified)


class CorrectiveProgramPass(CorrectivePass):
    """A corrective pass that looks up constants in the program it works on."""

    def __init__(self, exported_program: ExportedProgram | None = None) -> None:
        super().__init__()
        self.exported_program = exported_program


def applied(corrected_pass: ArmPass, node: Node, issue: str = "") -> None:
    """Note that a correction's pass changed a node; a pass of no correction notes nothing.

    Args:
        corrected_pass: the pass.
        node: the node.
        issue: the known issue, if it is not the first that the correction corrects.
    """
    correction = getattr(corrected_pass, CORRECTION, None)
    if correction is not None:
        noted(correction.name, issue or correction.issue, node)


def noted(correction: str, issue: str, node: Node) -> None:
    """Note that a correction made a difference at a node."""
    name = origin(node).rsplit(".", 1)[-1]
    current_lowering().notes.append((correction, issue, name))
