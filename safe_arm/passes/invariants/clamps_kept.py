"""Check that no activation is lost, and that bounds become the codes of those bounds."""

from __future__ import annotations

from collections import Counter

from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import Argument

from safe_arm._compat.upstream import QuantArgs, exir_ops
from safe_arm.core.island import QUANTIZE, QParams, activation_bounds, op_name
from safe_arm.core.origins import ORIGIN_KEY
from safe_arm.passes.invariants.domains import output_qparams
from safe_arm.passes.invariants.watch import Invariant, broken

FUSION = "FuseQuantizedActivationPass"
BOUNDS = "QuantizeClampArgumentsPass"
#: Passes that may make one clamp of two, take a constant's clamp away, or write it as a minimum and a maximum.
_MERGE = (
    "ComputeConstantOpsAOTPass",
    "DecomposeTOSAUnsupportedClampPass",
    "FuseConsecutiveClampsPass",
    "FuseConstantArgsPass",
    "FuseDuplicateUsersPass",
    "FuseIdenticalInputTransformsPass",
)
#: Passes that fuse equal operators of one value, among them clamps that came together behind different views.
_MERGE_EQUAL = ("PropagateViewCopyPermuteDownPass", "PropagateViewCopyPermuteUpPass")


def _defaults(namespace: object, *names: str) -> list[OpOverload]:
    """Return the default overloads of a dialect's operators, as far as this ExecuTorch has them."""
    packets = [getattr(namespace, name, None) for name in names]
    return list(filter(None, [getattr(packet, "default", None) for packet in packets]))


_TARGETS = (
    *_defaults(
        exir_ops.edge.aten, "relu", "relu_", "relu6", "hardtanh", "hardtanh_", "clamp"
    ),
    *_defaults(exir_ops.backend.tosa, "CLAMP"),
)


class ClampsKept(Invariant):
    """A pass may drop an activation only if the saturation of its output quantiser does the same."""

    name = "clamps-kept"
    _bounds: list[tuple[tuple[Argument, ...], QuantArgs | None]]
    _kinds: list[str]

    def before(self, pass_name: str, graph_module: GraphModule) -> None:
        self._clamps = [node for node in _clamps(graph_module) if node.users]
        if pass_name == FUSION:
            self._clamps = [node for node in self._clamps if not _implied(node)]
        if pass_name in _MERGE_EQUAL:
            self._kinds = [_kind(node) for node in self._clamps]
        if pass_name == BOUNDS:
            self._bounds = [(n.args[1:3], output_qparams(n)) for n in self._clamps]

    def after(
        self, pass_name: str, graph_module: GraphModule, program: ExportedProgram | None
    ) -> None:
        if pass_name in _MERGE:
            return
        clamps = _clamps(graph_module)
        if pass_name == FUSION:
            clamps = [node for node in clamps if not _implied(node)]
        if pass_name in _MERGE_EQUAL and set(map(_kind, clamps)) == set(self._kinds):
            return
        if len(clamps) < len(self._clamps):
            broken(
                _missing(self._clamps, clamps),
                "is gone, and nothing else keeps its values within its bounds",
            )
        if pass_name == BOUNDS and len(clamps) == len(self._bounds):
            for node, (bounds, domain) in zip(clamps, self._bounds, strict=True):
                _check_codes(node, bounds, domain)


def _kind(node: Node) -> str:
    """Return what equal clamps of one value have in common: operator, bounds and domain."""
    return f"{node.target} {node.args[1:]} {output_qparams(node)}"


def _clamps(graph_module: GraphModule) -> list[Node]:
    clamps: list[Node] = []
    for target in _TARGETS:
        clamps += graph_module.graph.find_nodes(
            op="call_function", target=target, sort=False
        )
    return sorted(clamps) if len(clamps) > 1 else clamps


def _implied(node: Node) -> bool:
    """Tell whether an activation's one quantiser saturates where the activation clamps."""
    quantize = next(iter(node.users))
    if len(node.users) != 1 or op_name(quantize) != QUANTIZE:
        return False
    qparams = QParams.of(quantize)
    bounds = activation_bounds(node)
    if qparams is None or bounds is None:
        return False
    return bounds.implied_by_saturation(qparams)


def _missing(before: list[Node], after: list[Node]) -> Node:
    lost = Counter(map(_origin, before)) - Counter(map(_origin, after))
    return next(node for node in before if _origin(node) in lost)


def _origin(node: Node) -> object:
    return node.meta.get(ORIGIN_KEY)


def _check_codes(
    node: Node, bounds: tuple[Argument, ...], domain: QuantArgs | None
) -> None:
    if domain is None:
        return
    for value, code in zip(bounds, node.args[1:3], strict=False):
        if isinstance(value, (int, float)):
            expected = int(domain.quantize_value(value).item())
            if code != expected:
                wrong = f"code {code} where {value:.6g} has code {expected}"
                broken(node, f"is bounded by {wrong}")
