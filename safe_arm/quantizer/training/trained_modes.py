"""Switch a net that is trained to evaluation and back, with all that belongs to its batch norms and dropouts.

torchao rewrites both by patterns that ignore numbers: a norm gets an epsilon of 1e-5 and a momentum of 0.1, every
dropout that is trained again drops half (known issues T53 and T56). What it writes has lost the mark of the annotators,
so that each dropout is left on the CPU and cuts the delegate.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.errors import warn_of_doubt
from safe_arm.quantizer.graphs.graph_edits import calls

_ATEN = torch.ops.aten
_NORM = _ATEN.batch_norm.default
#: Operators that have a flag for training, and its place.
_FLAGS: dict[Any, int] = {
    _NORM: 5,
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

    Those that are frozen from the start stay it where anything was exported in training mode. Where nothing was, the
    net was exported for evaluation, and all of it is trained. A norm without statistics goes by those of the batch in
    either case.

    Args:
        model: a graph that is prepared or converted; changed in place.
        trains: whether it is to be trained.

    Warns:
        DoubtfulInputWarning: norms that were all exported in evaluation mode are trained.
    """
    for node in _to_switch(_with_flags(model), trains):
        place = _FLAGS[node.target]
        before, after = node.args[:place], node.args[place + 1 :]
        node.args = (*before, trains, *after)
        node.meta[_SWITCHED_OFF] = not trains
    model.recompile()


def _with_flags(model: GraphModule) -> list[Node]:
    """Return the operators that have a flag for training, but for norms without statistics."""
    nodes = []
    for target in _FLAGS:
        for node in calls(model, target):
            if target is not _NORM or node.args[3] is not None:
                nodes.append(node)
    return nodes


def _to_switch(nodes: list[Node], trains: bool) -> list[Node]:
    """Return which of the operators are to be switched."""
    trained, switched = [], []
    for node in nodes:
        if node.args[_FLAGS[node.target]] is True:
            trained.append(node)
        if node.meta.get(_SWITCHED_OFF):
            switched.append(node)
    if not trains:
        return trained
    if trained or switched:
        return switched
    norms = [node for node in nodes if node.target is _NORM]
    if norms:
        warn_of_doubt(
            f"the net was exported in evaluation mode, and its {len(norms)} batch norm(s) are trained from here on: to "
            "keep them frozen, leave move_exported_model_to_train out; to train them without this warning, export the "
            "net in training mode"
        )
    return nodes
