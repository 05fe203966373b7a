"""The domain of a clamp is as wide as its bounds."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import QuantizationSpec

from safe_arm._compat.annotations import is_calibrated, spec_at
from safe_arm.quantizer.domains.own_domains import give_own_domain, shared_spec
from safe_arm.quantizer.graphs.graph_edits import calls, is_read_once

_ATEN = torch.ops.aten

_CLAMP = _ATEN.clamp.default
_HARDTANH = _ATEN.hardtanh.default
_RELU6 = _ATEN.relu6.default


def give_clamps_domains(model: GraphModule) -> None:
    """Let a clamp, a hardtanh or a relu6 have a domain that ends at its bounds.

    Stock shares the domain of the input. Its step is larger than need be, and the bounds are rounded to it, though
    values lie at them more often than anywhere else. The result gets a domain of its own. An input that nobody else
    reads is observed between the bounds (``saturated_domains``): the two domains are equal and cost nothing, unless
    what reads the result shares its domain with other values. An input that others read would cost an operator, which
    no hardtanh is worth.

    Args:
        model: an annotated float graph; its annotations are changed in place.
    """
    for target in (_CLAMP, _HARDTANH, _RELU6):
        for clamp in calls(model, target):
            spec = shared_spec(clamp)
            if spec is not None and (_is_sole_reader(clamp) or target is _CLAMP):
                give_own_domain(model, clamp, spec)


def _is_sole_reader(clamp: Node) -> bool:
    """Return whether only a clamp reads what is calibrated for it."""
    source = clamp.args[0]
    if not is_read_once(source):
        return False
    spec = spec_at(source)
    if not isinstance(spec, QuantizationSpec) or spec.is_dynamic:
        return False
    return is_calibrated(spec)
