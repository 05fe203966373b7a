"""Give operators that have one quantisation domain their inputs in the domain of their output."""

from __future__ import annotations

import operator

import torch
from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import (
    DQ_OPS,
    Q_OPS,
    PassResult,
    exir_ops,
    is_param_node,
)
from safe_arm.core.island import QParams, is_marked_quantized, op_name
from safe_arm.core.operators import ElementOrigin, operators
from safe_arm.passes.applied import CorrectiveProgramPass, applied
from safe_arm.passes.invariants.domains import MOVES
from safe_arm.passes.invariants.domains_meet import undequantised

#: ``node.meta`` key: True for an operator one of whose inputs was requantised, so that a RESCALE computes its codes.
REQUANTISED = "safe_arm_requantised"
NEGATE = "aten::neg"
_quantized = exir_ops.edge.quantized_decomposed
#: Operators whose lowering moves, chooses, joins, clamps or mirrors codes: inputs and output must be in one domain.
#: A ``repeat_interleave`` of repeats alone gives indices, so it has no origin; with codes it moves them.
ONE_DOMAIN = (
    MOVES
    | operators(ElementOrigin.JOINED, ElementOrigin.MERGED)
    | {NEGATE, "aten::repeat_interleave"}
)


class RequantiseInputsPass(CorrectiveProgramPass):
    """Puts a quantiser in the output's domain, and a dequantiser, behind each DQ node that is in another one.

    The backend folds DQ and Q nodes into the operator between them, and where its TOSA form has room for one domain it
    takes one of the two for both (S6, S20), or the first list element's for all (S5). A quantiser is monotone and works
    on each value alone, so it may precede an operator that moves, chooses or clamps values: the codes are those of the
    quantised graph. In front of ``neg`` it quantises to the mirrored domain, whose codes NEGATE turns round one by one.
    Each inserted pair becomes one RESCALE.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        landings: dict[Node, QParams | None] = {}
        for node in reversed(graph_module.graph.nodes):
            output = _landing(node, landings) if _is_one_domain(node) else None
            landings[node] = output
            if output is None or all(map(self._is_constant, node.all_input_nodes)):
                continue
            negates = op_name(node) == NEGATE
            wanted = mirrored(output) if negates else output
            for source in node.all_input_nodes:
                domain = QParams.of(source) if source.target in DQ_OPS else None
                if domain is None or torch.uint8 in (domain.dtype, wanted.dtype):
                    continue
                if _fits(domain, wanted) or (negates and _of_one_step(domain, output)):
                    continue
                _requantise(source, node, wanted)
                node.meta[REQUANTISED] = True
                applied(self, node)
                modified = True
        return self.retraced(graph_module, modified)

    def _is_constant(self, value: Node) -> bool:
        """Tell whether a value is a constant: an operator on constants alone is folded, each in its own domain."""
        return is_param_node(self.exported_program, undequantised(value))


def mirrored(q: QParams) -> QParams:
    """Return the domain of the negated values in which every code has its counterpart: ``code' = -1 - code`` in int8.

    A zero point that is not 0 exists in int8 only; int16 codes are mirrored at 0.
    """
    limits = torch.iinfo(q.dtype)
    turn = -1 if q.dtype == torch.int8 else 0
    low = max(turn - q.qmax, limits.min)
    high = min(turn - q.qmin, limits.max)
    return QParams(q.scale, turn - q.zero_point, low, high, q.dtype)


def _is_one_domain(node: Node) -> bool:
    return is_marked_quantized(node) and (
        op_name(node) in ONE_DOMAIN or node.target is operator.getitem
    )


def _landing(node: Node, landings: dict[Node, QParams | None]) -> QParams | None:
    """Return the one domain in which all readers take a value, reached through operators that keep it; else None.

    Args:
        node: computes the value.
        landings: the domains of the operators after it.
    """
    domains: set[QParams | None] = set()
    for user in node.users:
        if user.target in Q_OPS:
            domain = QParams.of(user)
        elif _is_one_domain(user):
            domain = landings.get(user)
            if domain is not None and op_name(user) == NEGATE:
                domain = mirrored(domain)
        else:
            return None
        domains.add(domain)
    if len(domains) == 1:
        return domains.pop()
    return None


def _fits(domain: QParams, wanted: QParams) -> bool:
    """Tell whether codes of a domain are right in another: same step, same zero point, no code outside its range."""
    if not _of_one_step(domain, wanted) or domain.zero_point != wanted.zero_point:
        return False
    return domain.qmin >= wanted.qmin and domain.qmax <= wanted.qmax


def _of_one_step(domain: QParams, other: QParams) -> bool:
    """Tell whether NEGATE, which has both zero points, goes from one domain to the other."""
    return (domain.scale, domain.dtype) == (other.scale, other.dtype)


def _requantise(source: Node, node: Node, wanted: QParams) -> None:
    args = (wanted.scale, wanted.zero_point, wanted.qmin, wanted.qmax, wanted.dtype)
    with node.graph.inserting_before(node):
        codes = node.graph.call_function(
            _quantized.quantize_per_tensor.default, (source, *args)
        )
        value = node.graph.call_function(
            _quantized.dequantize_per_tensor.default,
            (codes, *args),
            dict(source.kwargs),
        )
    node.replace_input_with(source, value)
