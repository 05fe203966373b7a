"""Operators that torch itself writes with others are taken apart where no annotator knows them.

Export keeps a composite such as ``ravel`` or ``special.erf`` whole. Stock annotates what is in its tables and leaves
the composite float, though it annotates the reshape or the error function in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.node import Argument

from safe_arm.core.island import arguments_by_name, graph_modules, op_name
from safe_arm.core.operators import named
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    replace_results,
    rewrite_nodes,
)
from safe_arm.quantizer.graphs.own_writes import functional_of

#: Composites that no annotator and no step of ours takes whole.
_COMPOSITES = named(
    "absolute adjoint arccos arccosh arcsin arcsinh arctan arctanh atleast_1d"
    " atleast_2d atleast_3d avg_pool1d broadcast_tensors broadcast_to cartesian_prod"
    " chain_matmul clip column_stack cumulative_trapezoid diag diagflat diff divide"
    " dsplit dstack expand_as fix fliplr flipud float_power frobenius_norm ger gradient hsplit"
    " hstack kron linalg_diagonal linalg_matmul linalg_matrix_norm linalg_matrix_power"
    " linalg_multi_dot linalg_vander mH mT matrix_H matrix_power meshgrid multiply"
    " narrow negative numpy_T outer positive ravel reshape_as"
    " special_erf special_erfc special_exp2 special_expit special_expm1 special_log1p"
    " special_logit special_logsumexp special_ndtr special_round subtract swapaxes"
    " swapdims tensor_split trapezoid trapz true_divide view_as"
    " vsplit vstack"
)
_POWERS = named("linalg_matrix_power matrix_power")
#: The powers of a matrix that are taken apart: others have no product, an inverse, or many products.
_TAKEN_POWERS = (1, 2, 3)


def take_composites_apart(model: GraphModule) -> None:
    """Write composites with what torch writes them with.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        rewrite_nodes(module, _take_apart)


def _take_apart(node: Node) -> bool:
    """Write a composite with its parts, and tell whether it was."""
    composite = _composite_of(node)
    if composite is None:
        return False
    before = node.prev
    write = Writer(node)
    written = write.compute(composite, node.args, node.kwargs, is_whole=False)
    parts = []
    while node.prev is not before:
        before = before.next
        parts.append(before)
    if not replace_results(node, written):
        for part in reversed(parts):
            node.graph.erase_node(part)
        return False
    return True


def _composite_of(node: Node) -> OpOverload | None:
    """Return the composite that a node calls, or of which it writes the result in place; None for any other node."""
    target = node.target
    if not isinstance(target, OpOverload):
        return None
    if op_name(node).removesuffix("_") not in _COMPOSITES or _is_rounded_often(node):
        return None
    if op_name(node).endswith("_"):
        return functional_of(node)
    return target


def _is_rounded_often(node: Node) -> bool:
    """Tell whether the parts of a composite round so often that int8 costs 5 decibels or more.

    A gradient may be a sum of three products somewhere, and a power of a matrix many products.
    """
    name = op_name(node)
    if name not in _POWERS and name != "aten::gradient":
        return False
    arguments = arguments_by_name(node)
    if name in _POWERS:
        return arguments["n"] not in _TAKEN_POWERS
    has_coordinates = any(
        isinstance(each, Node) for each in _listed(arguments.get("spacing"))
    )
    return has_coordinates or arguments["edge_order"] != 1


def _listed(argument: Argument) -> Sequence[Argument]:
    return argument if isinstance(argument, (list, tuple)) else ()
