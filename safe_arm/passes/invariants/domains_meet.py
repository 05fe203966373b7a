"""Every operator reads its values in the domain they are in, from the delegate's inputs to its outputs."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import DQ_OPS, Q_OPS, QuantArgs, is_param_node
from safe_arm.passes.invariants.domains import Domain, domain_of, infer, same, shown
from safe_arm.passes.invariants.watch import Invariant, broken

#: Before this pass the domains are written out as Q and DQ nodes; ``FoldedQParams`` watches over the fold itself.
FOLD = "FoldAndAnnotateQParamsPass"
#: The first pass that computes with qparams. What comes between brings them into order first.
FROM = "InsertRescaleInt32Pass"


class DomainsMeet(Invariant):
    """Scales and zero points fit together at every operator and give the domains the delegate's outputs promise."""

    name = "domains-meet"

    def begin(self, program: ExportedProgram, graph_module: GraphModule) -> None:
        self._from_here = False
        self._sources: dict[str, Domain] = {}
        clashing: set[str] = set()
        for node in graph_module.graph.nodes:
            if node.target in DQ_OPS and node.args[0].op == "placeholder":
                domain = _static(node)
                if (
                    domain is None
                    or self._sources.setdefault(node.args[0].name, domain) != domain
                ):
                    clashing.add(node.args[0].name)
        for name in clashing | _folded(program, graph_module):
            self._sources.pop(name, None)
        self._outputs = [
            _static(value) if value.target in Q_OPS else None
            for value in outputs_of(graph_module)
        ]

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
            if (
                promised is not None
                and actual is not None
                and not same(actual, promised)
            ):
                broken(
                    value,
                    f"gives {shown(actual)}, and the delegate promises {shown(promised)}",
                )


def _folded(program: ExportedProgram, graph_module: GraphModule) -> set[str]:
    """Name the constants of operators that read constants alone: those are folded in floats, whatever their domain."""
    found: set[str] = set()
    for node in graph_module.graph.nodes:
        if node.op != "call_function" or node.target in (*DQ_OPS, *Q_OPS):
            continue
        read = [
            each.args[0] if each.target in DQ_OPS else each
            for each in node.all_input_nodes
        ]
        if read and all(is_param_node(program, each) for each in read):
            found.update(each.name for each in read)
    return found


def _static(node: Node) -> Domain | None:
    if any(isinstance(arg, Node) for arg in node.args[1:]):
        return None
    return domain_of(QuantArgs.from_operator(node.target, node.args))


def outputs_of(graph_module: GraphModule) -> list[Node]:
    """Return the nodes a graph returns."""
    values = graph_module.graph.output_node().args[0]
    values = values if isinstance(values, (list, tuple)) else (values,)
    return [value for value in values if isinstance(value, Node)]
