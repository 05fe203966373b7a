"""Give a quantised program the state of the float net, not the state that calibration left behind (T28)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.fx import GraphModule

from safe_arm.core.attributes import attribute

_COPY = torch.ops.aten.copy_.default


@contextmanager
def state_at_rest(model: GraphModule) -> Iterator[list[GraphModule]]:
    """Give the state of a float graph back to the graph that it is quantised to inside of the block.

    Calibration calls the graph, and each call writes into its buffers. What is no state, such as the statistics that a
    batch norm learns in training, stays as it was learnt: state is what the graph itself copies into.

    Args:
        model: the float graph, not yet called.

    Yields:
        A list; the quantised graphs put there have their state set when the block ends.
    """
    before = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    quantised: list[GraphModule] = []
    yield quantised
    with torch.no_grad():
        for graph_module in quantised:
            for node in graph_module.graph.find_nodes(op="call_function", target=_COPY):
                name = getattr(node.args[0], "target", None)
                if getattr(node.args[0], "op", "") == "get_attr" and name in before:
                    attribute(graph_module, str(name)).copy_(before[name])
