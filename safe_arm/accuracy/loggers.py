"""Loggers of the values in the graphs that are compared."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.fx import GraphModule


class ValueLogger(torch.nn.Module):
    """Logs a copy, which operators in place cannot reach, and hands on what is put in the value's place.

    Attributes:
        value: the value of the last run.
        substitute: the value that the graph goes on with; None for the logged one.
    """

    value: Tensor
    substitute: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Log a value of any shape."""
        self.value = x.detach().clone()
        return x if self.substitute is None else self.substitute.clone()


class LeafLogger(ValueLogger):
    """Logs a value itself, as one that gradients can be asked for, and hands on a copy."""

    def forward(self, x: Tensor) -> Tensor:
        """Log floats of any shape."""
        self.value = x if x.requires_grad else x.detach().requires_grad_()
        return self.value.clone()


Logger = TypeVar("Logger", bound=ValueLogger)


def with_loggers(
    graph_module: GraphModule,
    places: Mapping[str, Sequence[str]],
    kind: type[Logger],
) -> tuple[GraphModule, dict[str, Logger]]:
    """Return a copy of a graph that logs values, and its loggers by name.

    Args:
        graph_module: stays as it is.
        places: by name, the nodes whose users get the logged value; the first is logged.
        kind: the class of the loggers.
    """
    model = copy.deepcopy(graph_module)
    nodes = {node.name: node for node in model.graph.nodes}
    loggers: dict[str, Logger] = {}
    for name, logged in places.items():
        attribute = f"_accuracy_logger_{len(loggers)}"
        loggers[name] = kind()
        model.add_submodule(attribute, loggers[name])
        node = nodes[logged[0]]
        with model.graph.inserting_after(node):
            logger = model.graph.call_module(attribute, (node,))
        for each in logged:
            nodes[each].replace_all_uses_with(
                logger, delete_user_cb=lambda user, own=logger: user is not own
            )
    model.recompile()
    return model, loggers
