"""Loggers of torchao's numeric debugger in the graphs that are compared."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

import torch
from torch.fx import GraphModule, Node

from safe_arm._compat.numeric_debugger import NodeSourceDebugInfo, OutputLogger


class CopyingLogger(OutputLogger):
    """Logs a copy, which operators in place cannot reach, and hands on what is put in the value's place.

    Attributes:
        substitute: the value that the graph goes on with; None for the logged one.
    """

    substitute: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Log a value of any shape."""
        self.stats.append(x.detach().clone())
        return x if self.substitute is None else self.substitute.clone()


class LeafLogger(OutputLogger):
    """Logs a value itself, as one that gradients can be asked for, and hands on a copy."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Log a value of any shape; integers go on as they are."""
        if not x.is_floating_point():
            return x
        value = x if x.requires_grad else x.detach().requires_grad_()
        self.stats.append(value)
        return value.clone()


def with_loggers(
    graph_module: GraphModule,
    places: Iterable[tuple[str, Sequence[str]]],
    kind: type[OutputLogger],
) -> tuple[GraphModule, dict[str, OutputLogger]]:
    """Return a copy of a graph that logs values.

    Args:
        graph_module: stays as it is.
        places: by name, the nodes whose users get the logged value; the first is logged.
        kind: the class of the loggers.

    Returns:
        The copy, and its loggers by name; their handles are the names.
    """
    model = copy.deepcopy(graph_module)
    nodes = {node.name: node for node in model.graph.nodes}
    loggers: dict[str, OutputLogger] = {}
    for index, (name, logged) in enumerate(places):
        loggers[name] = kind(
            handle(name), logged[0], nodes[logged[0]].meta.get("nn_module_stack")
        )
        attribute = f"_accuracy_logger_{index}"
        model.add_submodule(attribute, loggers[name])
        _insert(nodes[logged[0]], [nodes[each] for each in logged], attribute)
    model.recompile()
    return model, loggers


def handle(name: str) -> NodeSourceDebugInfo:
    """Return the debug handle of the unit of that name."""
    return NodeSourceDebugInfo(name, 0)


def _insert(node: Node, alike: Sequence[Node], attribute: str) -> None:
    graph = node.graph
    with graph.inserting_after(node):
        logger = graph.call_module(attribute, (node,))
    for each in alike:
        each.replace_all_uses_with(
            logger, delete_user_cb=lambda user: user is not logger
        )
