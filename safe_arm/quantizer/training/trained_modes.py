"""Switch a net that is trained to evaluation and back, with all that belongs to its batch norms and dropouts.

torchao rewrites both by patterns that ignore numbers: a norm gets an epsilon of 1e-5 and a momentum of 0.1, every
dropout that is trained again drops half (known issues T53 and T56). What it writes has lost the mark of the annotators,
so that each dropout is left on the CPU and cuts the delegate.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.graph_edits import calls

_ATEN = torch.ops.aten
#: Operators that have a flag for training, and its place.
_FLAGS: dict[Any, int] = {
    _ATEN.batch_norm.default: 5,
    _ATEN.dropout.default: 2,
    _ATEN.dropout_.default: 2,
    _ATEN.feature_dropout.default: 2,
    _ATEN.feature_dropout_.default: 2,
    _ATEN.alpha_dropout.default: 2,
}
#: Key in ``meta`` of an operator that is trained again when the net is.
_SWITCHED_OFF = "safe_arm_switched_off"


def switch_training(model: GraphModule, trains: bool) -> None:
    """Freeze the batch norms and dropouts of a graph that are trained, or train those again that were.

    Those that are frozen from the start stay it, unless all of a kind are. A norm without statistics goes by those of
    the batch in either case.

    Args:
        model: a graph that is prepared or converted; changed in place.
        trains: whether it is to be trained.
    """
    for target in _FLAGS:
        nodes = []
        for node in calls(model, target):
            if target is not _ATEN.batch_norm.default or node.args[3] is not None:
                nodes.append(node)
        for node in _to_switch(nodes, trains):
            place = _FLAGS[target]
            before, after = node.args[:place], node.args[place + 1 :]
            node.args = (*before, trains, *after)
            node.meta[_SWITCHED_OFF] = not trains
    model.recompile()


def _to_switch(nodes: list[Node], trains: bool) -> list[Node]:
    """Return which of the operators of a kind are to be switched."""
    trained, switched = [], []
    for node in nodes:
        if node.args[_FLAGS[node.target]] is True:
            trained.append(node)
        if node.meta.get(_SWITCHED_OFF):
            switched.append(node)
    if not trains:
        return trained
    return switched or ([] if trained else nodes)
