"""Give each quantiser of a value an operator of its own."""

from __future__ import annotations

from torch.fx import Node

from safe_arm._compat.upstream import DQ_OPS, Q_OPS
from safe_arm.core.island import QParams, is_marked_quantized
from safe_arm.passes.applied import CorrectivePass


class SplitQuantisersPass(CorrectivePass):
    """Computes a value that is quantised to several domains once for each, and quantises it to each once.

    The backend's operators have one quantiser: with a second one behind it, an operator's codes are read in the wrong
    domain, or the export crashes (S7). The operators in floats between the DQ nodes and the value are copied; each copy
    rounds once, as its quantiser does.
    """

    def correct(self, node: Node) -> bool:
        if len(node.users) < 2 or not is_marked_quantized(node):
            return False
        quantizes = _quantizes_by_domain(node)
        if quantizes is None:
            return False
        for number, (quantize, *alike) in enumerate(quantizes):
            for user in alike:
                user.replace_all_uses_with(quantize)
                node.graph.erase_node(user)
            if number > 0:
                with node.graph.inserting_before(node.next):
                    quantize.replace_input_with(node, _copied(node))
        return True


def _quantizes_by_domain(node: Node) -> list[list[Node]] | None:
    """Group the users of a node by the domain they quantise to; None if one does not quantise to a static domain."""
    groups: dict[QParams, list[Node]] = {}
    for user in node.users:
        domain = QParams.of(user) if user.target in Q_OPS else None
        if domain is None:
            return None
        groups.setdefault(domain, []).append(user)
    return list(groups.values())


def _copied(node: Node) -> Node:
    """Copy an operator and what it reads, back to dequantisers, codes and inputs."""
    if (
        node.op != "call_function"
        or node.target in (*Q_OPS, *DQ_OPS)
        or not is_marked_quantized(node)
    ):
        return node
    return node.graph.node_copy(node, _copied)
