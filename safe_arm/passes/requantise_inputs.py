"""Give operators that know one quantisation domain their inputs in the domain of their output."""

from __future__ import annotations

import operator
from typing import ClassVar

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import (
    DQ_OPS,
    Q_OPS,
    ArmPass,
    PassResult,
    exir_ops,
    is_param_node,
)
from safe_arm.core.island import QParams, is_marked_quantized, op_name
from safe_arm.passes.applied import applied
from safe_arm.passes.invariants.domains import MOVES

#: Name of this rule in ``node.meta["safe_arm"]`` of the nodes it touched.
RULE = "requantise-inputs"
NEGATE = "aten::neg"
_quantized = exir_ops.edge.quantized_decomposed
#: Whose lowering moves, chooses, joins, clamps or mirrors codes: all inputs and the output have to be in one domain.
ONE_DOMAIN = MOVES | frozenset(
    f"aten::{name}"
    for name in (
        "neg",
        "cat",
        "stack",
        "where",
        "index_put",
        "slice_scatter",
        "select_scatter",
        "scatter",
        "masked_fill",
        "pad",
        "index",
        "gather",
        "repeat_interleave",
        "max_pool2d_with_indices",
        "split_copy",
        "as_strided_copy",
        "split_with_sizes_copy",
        "unbind_copy",
        "detach_copy",
        "hardtanh",
        "relu",
        "tril",
        "t_copy",
    )
)


class RequantiseInputsPass(ArmPass):
    """Puts a quantiser in the output's domain, and a dequantiser, behind each DQ node that is in another one.

    The backend folds DQ and Q nodes into the operator between them, and where its TOSA form has room for one domain it
    takes one of the two for both (S6, S20), or the first list element's for all (S5). A quantiser is monotone and works
    on each value alone, so it may go before whatever moves, chooses or clamps values: the codes are those of the
    quantised graph. In front of ``neg`` it quantises to the mirrored domain, whose codes NEGATE turns round one by one.
    Each pair that is put in becomes one RESCALE.
    """

    _passes_required_after: ClassVar[set[type]] = set()

    def __init__(self, exported_program: ExportedProgram) -> None:
        super().__init__()
        self.exported_program = exported_program

    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        landings: dict[Node, QParams | None] = {}
        for node in reversed(graph_module.graph.nodes):
            output = landings[node] = (
                _landing(node, landings) if _is_one_domain(node) else None
            )
            if output is None or all(map(self._is_constant, node.all_input_nodes)):
                continue
            wanted = mirrored(output) if op_name(node) == NEGATE else output
            for source in node.all_input_nodes:
                domain = QParams.of(source) if source.target in DQ_OPS else None
                if domain is None or torch.uint8 in (domain.dtype, wanted.dtype):
                    continue
                if _fits(domain, wanted) or (
                    op_name(node) == NEGATE and _of_one_step(domain, output)
                ):
                    continue
                _requantise(source, node, wanted)
                node.meta["safe_arm"] = RULE
                applied(self, node)
                modified = True
        if modified:
            graph_module = super().call(graph_module).graph_module
        return PassResult(graph_module, modified)

    def _is_constant(self, value: Node) -> bool:
        """Whether a value is a constant: an operator on such alone is folded in floats, each in its own domain."""
        return is_param_node(
            self.exported_program, value.args[0] if value.target in DQ_OPS else value
        )


def mirrored(q: QParams) -> QParams:
    """Return the domain of the negated values in which every code has its counterpart: ``code' = -1 - code`` in int8.

    A zero point that is not 0 exists in int8 only; int16 codes are mirrored at 0.
    """
    limits = torch.iinfo(q.dtype)
    turn = -1 if q.dtype == torch.int8 else 0
    low, high = max(turn - q.qmax, limits.min), min(turn - q.qmin, limits.max)
    return QParams(q.scale, turn - q.zero_point, low, high, q.dtype)


def _is_one_domain(node: Node) -> bool:
    return is_marked_quantized(node) and (
        op_name(node) in ONE_DOMAIN or node.target is operator.getitem
    )


def _landing(node: Node, landings: dict[Node, QParams | None]) -> QParams | None:
    """Return the one domain in which all readers take a value, reached through operators that keep it; else None.

    Args:
        node: computes the value.
        landings: what was found for the operators after it.
    """
    domains: set[QParams | None] = set()
    for user in node.users:
        if user.target in Q_OPS:
            domains.add(QParams.of(user))
        elif _is_one_domain(user):
            output = landings.get(user)
            domains.add(
                mirrored(output) if output and op_name(user) == NEGATE else output
            )
        else:
            return None
    return domains.pop() if len(domains) == 1 else None


def _fits(domain: QParams, wanted: QParams) -> bool:
    """Whether codes of a domain are right in another: same step, same zero point, and no code outside its range."""
    same = (domain.scale, domain.zero_point, domain.dtype) == (
        wanted.scale,
        wanted.zero_point,
        wanted.dtype,
    )
    return same and domain.qmin >= wanted.qmin and domain.qmax <= wanted.qmax


def _of_one_step(domain: QParams, other: QParams) -> bool:
    """Whether NEGATE, which knows both zero points, goes from one to the other."""
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
