"""Check that every operator reads its values in the domain they are in, from inputs to outputs."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import DQ_OPS, Q_OPS, QuantArgs, is_param_node
from safe_arm.passes.invariants.domains import Domain, domain_of, infer, same, shown
from safe_arm.passes.invariants.watch import Invariant, broken

#: Before this pass the domains are written out as Q and DQ nodes; ``FoldedQParams`` watches over the fold itself.
FOLD = "FoldAndAnnotateQParamsPass"
#: The first pass that computes with qparams. Passes between the two bring qparams into order first.
FROM = "InsertRescaleInt32Pass"


class DomainsMeet(Invariant):
    """Scales and zero points fit together at every operator and give the domains the delegate's outputs promise."""

    name = "domains-meet"

    def begin(self, program: ExportedProgram, graph_module: GraphModule) -> None:
        self._from_here = False
        self._sources: dict[str, Domain] = {}
        clashing = _folded(program, graph_module)
        for node in graph_module.graph.nodes:
            if node.target in DQ_OPS and node.args[0].op == "placeholder":
                name = node.args[0].name
                domain = _static(node)
                if domain is None or self._sources.setdefault(name, domain) != domain:
                    clashing.add(name)
        for name in clashing:
            self._sources.pop(name, None)
        self._outputs: list[Domain | None] = []
        for value in outputs_of(graph_module):
            promised = _static(value) if value.target in Q_OPS else None
            self._outputs.append(promised)

    def before(self, pass_name: str, graph_module: GraphModule) -> None:
        self._from_here |= pass_name == FROM

    def after(
        self, pass_name: str, graph_module: GraphModule, program: ExportedProgram | None
    ) -> None:
        if not self._from_here:
            return
        domains = infer(graph_module.graph, self._sources)
        outputs = outputs_of(graph_module)
        if len(outputs) != len(self._outputs):
            return
        for value, promised in zip(outputs, self._outputs, strict=True):
            actual = domains.get(value)
            if promised is None or actual is None or same(actual, promised):
                continue
            promise = f"the delegate promises {shown(promised)}"
            broken(value, f"gives {shown(actual)}, and {promise}")


def _folded(program: ExportedProgram, graph_module: GraphModule) -> set[str]:
    """Name the constants of operators that read constants alone: those are folded in floats, whatever their domain."""
    names: set[str] = set()
    for node in graph_module.graph.nodes:
        if node.op != "call_function" or node.target in (*DQ_OPS, *Q_OPS):
            continue
        operands = list(map(undequantised, node.all_input_nodes))
        if all(is_param_node(program, operand) for operand in operands):
            names.update(operand.name for operand in operands)
    return names


def undequantised(value: Node) -> Node:
    """Return the operand of a DQ node, and any other node itself."""
    source = value.args[0] if value.target in DQ_OPS else value
    assert isinstance(source, Node)
    return source


def _static(node: Node) -> Domain | None:
    if any(isinstance(arg, Node) for arg in node.args[1:]):
        return None
    return domain_of(QuantArgs.from_operator(node.target, node.args))


def outputs_of(graph_module: GraphModule) -> list[Node]:
    """Return the nodes a graph returns."""
    values = graph_module.graph.output_node().args[0]
    if not isinstance(values, (list, tuple)):
        values = (values,)
    return [value for value in values if isinstance(value, Node)]
