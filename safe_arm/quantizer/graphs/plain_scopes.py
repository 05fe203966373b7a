"""The body of an autocast or gradient scope is written into the graph around it.

Export keeps a scope as a higher-order operator with a graph of its own, which no annotator looks into: a linear
attention in ``torch.autocast(..., enabled=False)`` stays float and cuts the delegate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from safe_arm.core.attributes import set_attribute, stored_value
from safe_arm.core.control_flow import graph_read
from safe_arm.core.doubts import in_training_mode
from safe_arm.core.island import call_functions
from safe_arm.quantizer.graphs.graph_edits import replace_node

_AUTOCAST = torch.ops.higher_order.wrap_with_autocast
_GRADIENTS = torch.ops.higher_order.wrap_with_set_grad_enabled
#: The place of the body among a scope's arguments; its inputs follow.
_PLACES: dict[Any, int] = {_AUTOCAST: 4, _GRADIENTS: 1}


def write_scopes_out(model: GraphModule, with_casts: bool = False) -> None:
    """Replace the scopes of a graph by their bodies, the scopes in those included.

    A scope without gradients stays in a net that is being trained.

    Args:
        model: a float graph before annotation; changed in place. The branches of its control flow are left alone: each
            is annotated as a graph of its own.
        with_casts: also scopes that cast; the values of their bodies keep the dtypes that were noted there.
    """
    is_trained = bool(in_training_mode(model))
    while scopes := _scopes_of(model.graph, is_trained, with_casts):
        for scope in scopes:
            _write_out(scope, model)
    model.recompile()


def write_inner_scopes_out(model: GraphModule) -> None:
    """Replace the scopes within the scopes of a graph by their bodies: stock raises on such a one.

    Args:
        model: a float graph before annotation; changed in place.
    """
    for node in call_functions(model):
        body = body_of(node)
        if body is not None:
            write_scopes_out(body)


def casts(scope: Node) -> bool:
    """Tell whether a node is a scope in which operators cast what they read."""
    return scope.target is _AUTOCAST and bool(scope.args[2])


def body_of(scope: Node) -> GraphModule | None:
    """Return the body of a scope; None for any other node."""
    place = _PLACES.get(scope.target)
    if place is None:
        return None
    body = scope.args[place]
    assert isinstance(body, Node)
    return graph_read(body)


def _scopes_of(graph: Graph, is_trained: bool, with_casts: bool) -> list[Node]:
    scopes = []
    for scope in graph.find_nodes(op="call_function", target=_AUTOCAST):
        if with_casts or not casts(scope):
            scopes.append(scope)
    if not is_trained:
        scopes += graph.find_nodes(op="call_function", target=_GRADIENTS)
    return scopes


def _write_out(scope: Node, model: GraphModule) -> None:
    graph = scope.graph
    place = _PLACES[scope.target]
    reader: Any = scope.args[place]
    body: Any = body_of(scope)
    operands: Any = scope.args[place + 1 :]
    results = written_in(body, operands, scope, reader.target)
    for pick in list(scope.users):
        replace_node(pick, results[pick.args[1]])
    graph.erase_node(scope)
    if not reader.users:
        graph.erase_node(reader)
        model.delete_submodule(reader.target)


def written_in(
    body: GraphModule, operands: Sequence[Node], node: Node, name: str
) -> Any:
    """Write the body of an operator into the graph around it.

    Args:
        body: a graph.
        operands: the values for its inputs.
        node: the node that the copy is written before; its graph is changed in place.
        name: the name of the body, under which the tensors that it reads are stored.

    Returns:
        The results, as the body returns them.
    """
    model = node.graph.owning_module
    assert model is not None
    inputs = body.graph.find_nodes(op="placeholder")
    written: dict[Node, Node] = dict(zip(inputs, operands, strict=True))
    with node.graph.inserting_before(node):
        results = node.graph.graph_copy(body.graph, written)
    for inner in body.graph.find_nodes(op="get_attr"):
        own_name = f"_{name}_{inner.target}".replace(".", "_")
        set_attribute(model, own_name, stored_value(inner))
        written[inner].target = own_name
    return results
