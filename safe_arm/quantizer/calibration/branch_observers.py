"""The branches of conditions and loops read and return values in the domains that these have outside.

Calibration gives branches domains of their own, and each value is requantised on its way in and out. Of a loop the
delegate does so in each turn, and the quantised graph does not (S40). A condition's result is rounded twice.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.fx import GraphModule, Node

from safe_arm.core.control_flow import CONDITION, LOOP, branches_of
from safe_arm.quantizer.calibration.guarded_observers import GuardedObserver
from safe_arm.quantizer.calibration.untaken_branches import Branches
from safe_arm.quantizer.domains.parted_domains import JoinedEdge, PartedDomain
from safe_arm.quantizer.graphs.graph_edits import calls
from safe_arm.quantizer.graphs.stand_ins import Observer, StandIn, shown

#: The observer of a value; None for one that is not quantised.
_Shared: TypeAlias = GuardedObserver | None


def share_domains_of_branches(model: GraphModule) -> None:
    """Let the branches of conditions and loops have the domains of what they read and return, once the graph is called.

    Torchao prepares branches after the graph around them.

    Args:
        model: a prepared graph.
    """

    has_observers = any(isinstance(each, GuardedObserver) for each in model.modules())
    if has_observers and any(calls(model, CONDITION, LOOP)):
        model.register_forward_pre_hook(_share_once)


def _share_once(model: nn.Module, _: object) -> None:
    for key, hook in list(model._forward_pre_hooks.items()):
        if hook is _share_once:
            del model._forward_pre_hooks[key]
    assert isinstance(model, GraphModule)
    _share(model)
    _watch(model)


def _watch(model: GraphModule) -> None:
    """Let each branch be taken that no sample takes."""
    guards = (each for each in model.modules() if isinstance(each, GuardedObserver))
    watch = next((each.watch for each in guards), None)
    if watch is None:
        return
    for node in calls(model, CONDITION):
        names = (f"true branch of {node.name!r}", f"false branch of {node.name!r}")
        Branches(names, branches_of(node), watch)
    for node in calls(model, LOOP):
        names = (f"condition of {node.name!r}", f"body of {node.name!r}")
        Branches(names, branches_of(node), watch)


def _share(model: GraphModule) -> None:
    for node in calls(model, CONDITION):
        operands = node.args[3]
        read = [_observer_of(operand, model) for operand in operands]
        returned: list[_Shared] = [None] * len(node.meta["val"])
        for result in node.users:
            for reader in result.users:
                observer = _observer_of(reader, model)
                if observer is not None:
                    returned[result.args[1]] = observer
        for branch in branches_of(node):
            _share_with(branch, read, returned)
    for node in calls(model, LOOP):
        carried = [_observer_of(operand, model) for operand in node.args[2]]
        condition, body = branches_of(node)
        _share_with(condition, carried, [])
        _share_with(body, carried, carried)


def _share_with(
    branch: GraphModule, read: list[_Shared], returned: list[_Shared]
) -> None:
    """Put observers in the place of those that a branch has for its inputs and results, which are none of the net's."""
    for module in branch.children():
        if isinstance(module, GuardedObserver):
            module.input_name = ""
            module.narrow = None
    observers = {}
    pairs = []
    for value, shared in zip(
        branch.graph.find_nodes(op="placeholder"), read, strict=True
    ):
        pairs += [(reader, shared) for reader in value.users]
    if returned:
        results: Any = branch.graph.output_node().args[0]
        pairs += zip(results, returned, strict=True)
    for node, shared in pairs:
        own = _observer_of(node, branch)
        if own and shared and own.qscheme == shared.qscheme:
            observers[own.observer] = _in_place_of(own.observer, shared.observer)
    for module in branch.modules():
        for name, child in module.named_children():
            if child in observers:
                setattr(module, name, observers[child])
        derived = getattr(module, "obs_or_fqs", None)
        if isinstance(derived, list):
            derived[:] = [observers.get(each, each) for each in derived]


class _JoinedToo(StandIn):
    """Observes in a branch what has a domain outside, and shows it to what it is joined with in the branch, too.

    Args:
        observer: the observer outside.
        join: the observer of the join.
    """

    def __init__(self, observer: Observer, join: Observer) -> None:
        super().__init__(observer)
        self.join = join

    def forward(self, x: Tensor) -> Tensor:
        """Show a value of any shape to both observers, and return it."""
        self.join(x)
        return shown(self.observer, x)


def _in_place_of(own: Observer, shared: Observer) -> Observer:
    """Return the observer outside; where a branch joins the value with others, one that the join depends on."""
    for each in own.modules():
        if isinstance(each, PartedDomain):
            return _JoinedToo(shared, each.shared)
    return shared


def _observer_of(node: object, model: GraphModule) -> _Shared:
    """Return what observes a value; None for a requantiser, which may convert to nothing."""
    if not isinstance(node, Node) or node.op != "call_module":
        return None
    guard = model.get_submodule(str(node.target))
    if not isinstance(guard, GuardedObserver) or isinstance(guard.observer, JoinedEdge):
        return None
    return guard
