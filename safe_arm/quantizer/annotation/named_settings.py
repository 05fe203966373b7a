"""Say of a setting for a name that the net has no such name: it would change nothing, without a word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from torch.fx import GraphModule

from safe_arm.core.errors import warn_of_doubt
from safe_arm.core.island import call_functions
from safe_arm.core.written import module_paths
from safe_arm.quantizer.graphs.named_operators import exported_names

_MISSED = "{}({!r}, ...) changes nothing: {}"
_MODULE = "no operator of the net is in a module of that name"
_NODE = "no operator of the exported net has that name"
#: Names that a message lists, at most.
_LISTED = 5


class NamedSettings:
    """The names that the settings of one quantiser select operators by.

    A name that one graph has is not looked for in others: branches of control flow are quantised one by one, and a
    quantiser may quantise several nets.
    """

    def __init__(self) -> None:
        self._modules: set[str] = set()
        self._nodes: set[str] = set()

    def add_module(self, name: str) -> None:
        """Take note of a module that has a config; the empty name is the whole net."""
        if name:
            self._modules.add(name)

    def add_nodes(self, names: Iterable[str]) -> None:
        """Take note of operators that have a config."""
        self._nodes.update(names)

    def find(self, model: GraphModule) -> None:
        """Look for the names in a graph with its nested graphs; those that it has are not looked for again."""
        modules, nodes = _names_in(model)
        self._modules.difference_update(modules)
        self._nodes.difference_update(nodes)

    def warn_of_missed(self, model: GraphModule) -> None:
        """Warn once of each name that a graph does not have.

        Args:
            model: a graph before it is annotated.
        """
        if not self._modules and not self._nodes:
            return
        self.find(model)
        modules, nodes = _names_in(model)
        for name in sorted(self._modules):
            reason = _MODULE + _instead(name, modules)
            warn_of_doubt(_MISSED.format("set_module_name", name, reason))
        for name in sorted(self._nodes):
            reason = _NODE + _instead(name, nodes)
            warn_of_doubt(_MISSED.format("set_node_name", name, reason))
        self._modules.clear()
        self._nodes.clear()


def _names_in(model: GraphModule) -> tuple[list[str], list[str]]:
    """Return the names of modules and of operators that a graph and its nested graphs have."""
    modules: dict[str, None] = {}
    nodes: dict[str, None] = {}
    for node in call_functions(model):
        modules.update(dict.fromkeys(module_paths(node)))
        nodes.update(dict.fromkeys((*exported_names(node), node.name)))
    modules.pop("", None)
    return list(modules), list(nodes)


def _instead(name: str, known: Sequence[str]) -> str:
    """Return the names nearest to one that is not known, or the first that there are, as the end of a sentence."""
    near = get_close_matches(name, known, n=2)
    listed = [repr(each) for each in near or known[:_LISTED]]
    if not listed:
        return "; its operators have none"
    if near:
        return f"; near it are {', '.join(listed)}"
    return f"; there are {', '.join(listed)}{', ...' * (len(known) > _LISTED)}"
