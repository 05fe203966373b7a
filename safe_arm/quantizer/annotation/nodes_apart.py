"""The nodes that are held out of the passes before annotation from the start."""

from __future__ import annotations

from torch.fx import GraphModule

from safe_arm._compat.upstream import TosaSpecification
from safe_arm.quantizer.graphs.dynamic_scatters import scatters_of_dynamic_sizes
from safe_arm.quantizer.spellings.infinite_numbers import norms_of_infinite_order
from safe_arm.quantizer.spellings.integer_divisions import divisions_of_integers


def nodes_apart(model: GraphModule, spec: TosaSpecification) -> dict[str, str]:
    """Return the nodes of which a pass would make something else, each with why it stays as it is.

    Args:
        model: a float graph before annotation.
        spec: what the target computes.
    """
    reasons = norms_of_infinite_order(model) | scatters_of_dynamic_sizes(model)
    if spec.is_U55_subset:
        reasons |= divisions_of_integers(model)
    return reasons
