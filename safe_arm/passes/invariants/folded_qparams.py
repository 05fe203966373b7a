"""Check that folding Q and DQ nodes into metadata keeps their qparams."""

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
from safe_arm.core.operators import ElementOrigin, operators
from safe_arm.passes.invariants.domains import MOVES, domain_of, same, shown
from safe_arm.passes.invariants.domains_meet import FOLD
from safe_arm.passes.invariants.watch import Invariant, broken
from safe_arm.passes.record_element_qparams import ELEMENT_QPARAMS

_FOLDED = (*DQ_OPS, *Q_OPS)
_quantized = exir_ops.edge.quantized_decomposed
_PER_CHANNEL = (
    _quantized.quantize_per_channel.default,
    _quantized.dequantize_per_channel.default,
)
_ONE_DOMAIN = MOVES | operators(ElementOrigin.JOINED, ElementOrigin.AVERAGE)


@dataclass(frozen=True)
class _Claims:
    """The qparams in the Q and DQ nodes around an operator: of the elements of each argument, and of its value."""

    target: Target
    ins: dict[int, list[QuantArgs | None]]
    outs: list[QuantArgs]


class FoldedQParams(Invariant):
    """Each operator's qparams are those of the DQ nodes before it and the Q nodes behind it, one domain to an argument.

    The fold keeps one entry for an argument and one for the value. Where several domains meet, codes of one are read
    in another. An operator that only moves codes cannot requantise them.
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
        claimed = [claims.target for claims in self._claims]
        if [node.target for node in nodes] != claimed:
            return
        for node, claims in zip(nodes, self._claims, strict=True):
            if "input_qparams" in node.meta:
                _check_inputs(node, claims)
                _check_output(node, claims, moves=not self._is_constant(node))

    def _claimed(self, node: Node) -> _Claims:
        ins: dict[int, list[QuantArgs | None]] = {}
        for index, arg in enumerate(node.args):
            elements = arg if isinstance(arg, (list, tuple)) else [arg]
            nodes = [each for each in elements if isinstance(each, Node)]
            dequantised = any(each.target in DQ_OPS for each in nodes)
            if dequantised and all(map(self._static, nodes)):
                ins[index] = list(map(self._qparams, nodes))
        static = filter(self._static, node.users)
        outs = [self._qparams(user) for user in static if user.target in Q_OPS]
        return _Claims(node.target, ins, [each for each in outs if each is not None])

    def _is_constant(self, node: Node) -> bool:
        """Tell whether a node reads constants alone: then it is folded in floats, and quantised after that."""
        return all(is_param_node(self._program, each) for each in node.all_input_nodes)

    def _static(self, node: Node) -> bool:
        """Tell whether the qparams of a Q or DQ node, if it is one, are numbers or constants a channel."""
        if node.target not in _FOLDED:
            return True
        nodes = [arg for arg in node.args[1:] if isinstance(arg, Node)]
        if node.target in _PER_CHANNEL:
            return all(is_param_node(self._program, arg) for arg in nodes)
        return not nodes

    def _qparams(self, node: Node) -> QuantArgs | None:
        if node.target not in _FOLDED:
            return None
        value, scale, zero_point, *rest = node.args
        if isinstance(scale, Node):
            scale = get_param_tensor(self._program, scale)
        if isinstance(zero_point, Node):
            zero_point = get_param_tensor(self._program, zero_point)
        args = (value, scale, zero_point, *rest)
        return QuantArgs.from_operator(node.target, args)


def _operators(graph_module: GraphModule) -> list[Node]:
    operators = []
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and node.users and node.target not in _FOLDED:
            operators.append(node)
    return operators


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
                reads = f"reads argument {index} with {_shown(folded)}"
                broken(node, f"{reads}, and it was quantised with {_shown(element)}")


def _check_output(node: Node, claims: _Claims, *, moves: bool) -> None:
    if not claims.outs:
        return
    folded = list((node.meta.get("output_qparams") or {}).values())
    if not folded:
        broken(node, "has lost its output qparams")
    for qparams in (*claims.outs, *folded):
        if qparams != folded[0]:
            before = _shown(qparams)
            after = _shown(folded[0])
            broken(node, f"is quantised with {before} and has output qparams {after}")
    first = node.meta["input_qparams"].get(0)
    fixed = moves and first is not None and op_name(node) in _ONE_DOMAIN
    if fixed and not same(domain_of(first), domain_of(folded[0])):
        before = _shown(first)
        after = _shown(folded[0])
        broken(node, f"cannot requantise, and goes from {before} to {after}")


def _shown(qparams: QuantArgs) -> str:
    return f"{shown(domain_of(qparams))}, codes {qparams.qmin} to {qparams.qmax}"
