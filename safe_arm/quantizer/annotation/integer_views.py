"""Views of integers join no domains.

Stock lets all operators that move values share a domain with their neighbours, through views of integers, too: what is
selected at the same places, boxes up to 300 and scores up to 1, has one domain. It marks views of integers by
themselves only where they stand in front of all that.
"""

from __future__ import annotations

from torch.fx import GraphModule

from safe_arm._compat.annotations import mark_annotated
from safe_arm.core.island import gives_float, op_name
from safe_arm.quantizer.graphs.graph_edits import MOVES


def annotate_integer_views(model: GraphModule) -> None:
    """Annotate views of integers and conditions as stock does, with no domain, before anything else.

    Args:
        model: a float graph; changed in place.
    """
    for node in model.graph.nodes:
        if op_name(node) not in MOVES or gives_float(node):
            continue
        if not any(map(gives_float, node.all_input_nodes)):
            mark_annotated(node)
