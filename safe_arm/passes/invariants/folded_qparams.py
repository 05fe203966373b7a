"""Folding Q and DQ into metadata keeps what they said."""

from __future__ import annotations

from dataclasses import dataclass

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import Target

from safe_arm._compat.upstream import (
    DQ_OPS,
    Q_OPS,
    QuantArgs,
    exir_ops,
    get_param_tensor,
    is_param_node,
)
from safe_arm.core.island import op_name
from safe_arm.passes.invariants.domains import MOVES, domain_of, same, shown
from safe_arm.passes.invariants.domains_meet import FOLD
from safe_arm.passes.invariants.watch import Invariant, broken
from safe_arm.passes.record_element_qparams import ELEMENT_QPARAMS

_quantized = exir_ops.edge.quantized_decomposed
_PER_CHANNEL = (
    _quantized.quantize_per_channel.default,
    _quantized.dequantize_per_channel.default,
)
_ONE_DOMAIN = MOVES | {
    "aten::cat",
    "aten::stack",
    "aten::avg_pool2d",
    "aten::upsample_bilinear2d",
}


@dataclass(frozen=True)
class _Claims:
    """What the Q and DQ nodes around an operator say: of each argument's elements, and of its value."""

    target: Target
    ins: dict[int, list[QuantArgs | None]]
    outs: list[QuantArgs]


class FoldedQParams(Invariant):
    """Each operator's qparams are those of the DQ nodes before it and the Q nodes behind it, one domain to an argument.

    The fold keeps one entry for an argument and one for the value. Where several domains met, codes of one are read
    in another; an operator that only moves codes cannot requantise them on the way.
    """

    name = "folded-qparams"
    _claims: list[_Claims]

    def begin(self, program: ExportedProgram, graph_module: GraphModule) -> None:
        self._program = program

    def before(self, pass_name: str, graph_module: GraphModule) -> None:
        if pass_name == FOLD:
            self._claims = [self._claimed(node) for node in _operators(graph_module)]

    def after(
        self, pass_name: str, graph_module: GraphModule, program: ExportedProgram | None
    ) -> None:
        if pass_name != FOLD:
            return
        nodes = _operators(graph_module)
        if [node.target for node in nodes] == [
            claims.target for claims in self._claims
        ]:
            for node, claims in zip(nodes, self._claims, strict=True):
                if "input_qparams" in node.meta:
                    _check_inputs(node, claims)
                    _check_output(node, claims, moves=not self._is_constant(node))

    def _claimed(self, node: Node) -> _Claims:
        ins = {}
        for index, arg in enumerate(node.args):
            elements = [
                e
                for e in (arg if isinstance(arg, (list, tuple)) else [arg])
                if isinstance(e, Node)
            ]
            if any(e.target in DQ_OPS for e in elements) and all(
                map(self._static, elements)
            ):
                ins[index] = [self._qparams(e) for e in elements]
        quantisers = [
            user for user in node.users if user.target in Q_OPS and self._static(user)
        ]
        outs = [qparams for user in quantisers if (qparams := self._qparams(user))]
        return _Claims(node.target, ins, outs)

    def _is_constant(self, node: Node) -> bool:
        """Whether a node is computed from constants alone: it is folded in floats, and quantised after that."""
        return all(is_param_node(self._program, each) for each in node.all_input_nodes)

    def _static(self, node: Node) -> bool:
        """Whether the qparams of a Q or DQ node, if it is one, are numbers or constants a channel."""
        nodes = (
            [arg for arg in node.args[1:] if isinstance(arg, Node)]
            if node.target in (*DQ_OPS, *Q_OPS)
            else []
        )
        return not nodes or (
            node.target in _PER_CHANNEL
            and all(is_param_node(self._program, arg) for arg in nodes)
        )

    def _qparams(self, node: Node) -> QuantArgs | None:
        if node.target not in (*DQ_OPS, *Q_OPS):
            return None
        args = [
            get_param_tensor(self._program, arg) if isinstance(arg, Node) else arg
            for arg in node.args[1:3]
        ]
        return QuantArgs.from_operator(
            node.target, (node.args[0], *args, *node.args[3:])
        )


def _operators(graph_module: GraphModule) -> list[Node]:
    ignored = (*DQ_OPS, *Q_OPS)
    return [
        n
        for n in graph_module.graph.nodes
        if n.op == "call_function" and n.target not in ignored and n.users
    ]


def _check_inputs(node: Node, claims: _Claims) -> None:
    for index, elements in claims.ins.items():
        folded = node.meta["input_qparams"].get(index)
        if folded is None:
            broken(node, f"has lost the qparams of argument {index}")
        if index in (node.meta.get(ELEMENT_QPARAMS) or {}):
            continue  # A list of constants, each folded in its own domain.
        for element in elements:
            if element is None:
                broken(
                    node, f"joins quantised and unquantised values in argument {index}"
                )
            if element != folded:
                before = _shown(element)
                broken(
                    node,
                    f"reads argument {index} with {_shown(folded)}, and it was quantised with {before}",
                )


def _check_output(node: Node, claims: _Claims, *, moves: bool) -> None:
    if not claims.outs:
        return
    folded = list((node.meta.get("output_qparams") or {}).values())
    if not folded:
        broken(node, "has lost its output qparams")
    for qparams in (*claims.outs, *folded):
        if qparams != folded[0]:
            broken(
                node,
                f"is quantised with {_shown(qparams)} and has output qparams {_shown(folded[0])}",
            )
    first = node.meta["input_qparams"].get(0)
    fixed = moves and first is not None and op_name(node) in _ONE_DOMAIN
    if fixed and not same(domain_of(first), domain_of(folded[0])):
        broken(
            node,
            f"cannot requantise, and goes from {_shown(first)} to {_shown(folded[0])}",
        )


def _shown(qparams: QuantArgs) -> str:
    return f"{shown(domain_of(qparams))}, codes {qparams.qmin} to {qparams.qmax}"
