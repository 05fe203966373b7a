"""A clamp has a domain of its own, which is as wide as its bounds."""

from __future__ import annotations

import torch
from torch.fx import GraphModule

from safe_arm.quantizer.own_domains import give_own_domain, shared_spec

_CLAMP = torch.ops.aten.clamp.default


def give_clamps_domains(model: GraphModule) -> None:
    """Observe what a clamp gives apart from what it reads.

    Stock shares the domain of the input. Its step is larger than need be, and the bounds are rounded to it, though
    values lie at them more often than anywhere else.

    Args:
        model: an annotated float graph; its annotations are changed in place.
    """
    for clamp in model.graph.find_nodes(op="call_function", target=_CLAMP):
        spec = shared_spec(clamp)
        if spec is not None:
            give_own_domain(model, clamp, spec)
