"""A region in which autocast is off is written out where it is called."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.attributes import attribute
from safe_arm.quantizer.graph_edits import tensor_of

_REGION = torch.ops.higher_order.wrap_with_autocast
_CAST = torch.ops.aten.to.dtype
_ASSERTION = torch.ops.aten._assert_tensor_metadata.default


def inline_regions(model: GraphModule) -> None:
    """Write the operators of a region without autocast into the graph, and drop its casts to a value's own dtype.

    Export puts ``with torch.autocast(..., enabled=False)`` into a graph of its own, which no annotator looks into. It
    changes nothing where autocast is off anyway.

    Args:
        model: a float graph before annotation; changed in place. A region with constants of its own is left as it is.
    """
    is_changed = False
    for region in model.graph.find_nodes(op="call_function", target=_REGION):
        is_enabled = region.args[2]
        body = attribute(model, region.args[4].target)
        if not is_enabled and not body.graph.find_nodes(op="get_attr"):
            _inline(region, body)
            is_changed = True
    if not is_changed:
        return
    model.graph.eliminate_dead_code()
    model.delete_all_unused_submodules()
    model.recompile()


def _inline(region: Node, body: GraphModule) -> None:
    inputs = body.graph.find_nodes(op="placeholder")
    values: dict[Node, Any] = dict(zip(inputs, region.args[5:], strict=True))
    with region.graph.inserting_before(region):
        results: Any = region.graph.graph_copy(body.graph, values)
    for pick in list(region.users):
        if pick.target is operator.getitem:
            pick.replace_all_uses_with(results[pick.args[1]])
            region.graph.erase_node(pick)
    for node in body.graph.find_nodes(op="call_function", target=_ASSERTION):
        region.graph.erase_node(values[node])
    for node in body.graph.find_nodes(op="call_function", target=_CAST):
        _drop_cast(values[node])
    region.graph.erase_node(region)


def _drop_cast(cast: Node) -> None:
    """Drop a cast to the dtype that a value has."""
    source = cast.args[0]
    assert isinstance(source, Node)
    before = tensor_of(source)
    if before is None or before.dtype != cast.args[1]:
        return
    cast.replace_all_uses_with(source)
    cast.graph.erase_node(cast)
