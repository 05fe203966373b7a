"""Operators that no annotator knows are written with operators that one does.

Stock quantises what is in its annotators' tables; any other operator stays float and cuts the delegate in two, though
TOSA has an operator for it.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import graph_modules, op_name
from safe_arm.core.operators import named
from safe_arm.quantizer.graph_edits import Writer
from safe_arm.quantizer.operator_schemas import arguments_by_name
from safe_arm.quantizer.own_writes import functional_of
from safe_arm.quantizer.spelled_activations import ACTIVATIONS
from safe_arm.quantizer.spelled_arithmetic import ARITHMETIC
from safe_arm.quantizer.spelled_cells import CELLS, TRAINED_CELLS
from safe_arm.quantizer.spelled_convolutions import CONVOLUTIONS
from safe_arm.quantizer.spelled_folds import FOLDS
from safe_arm.quantizer.spelled_kernels import KERNELS
from safe_arm.quantizer.spelled_losses import LOSSES
from safe_arm.quantizer.spelled_norms import NORMS, NORMS_IN_GROUPS
from safe_arm.quantizer.spelled_pools import POOLS
from safe_arm.quantizer.spelled_products import PRODUCTS
from safe_arm.quantizer.spelled_resizes import RESIZES
from safe_arm.quantizer.spelled_views import VIEWS

_SPELLINGS: dict[Any, Any] = {
    **ACTIVATIONS,
    **ARITHMETIC,
    **CELLS,
    **CONVOLUTIONS,
    **FOLDS,
    **KERNELS,
    **LOSSES,
    **NORMS,
    **POOLS,
    **PRODUCTS,
    **RESIZES,
    **VIEWS,
}
#: Operators that int8 costs a decibel or more beside float. Where the profile has float, they need not be quantised to
#: be in the delegate.
_COSTLY = frozenset(
    (
        torch.ops.aten.addcdiv.default,
        torch.ops.aten.addcmul.default,
        torch.ops.aten.baddbmm.default,
        torch.ops.aten.lerp.Scalar,
        torch.ops.aten.lerp.Tensor,
        torch.ops.aten.linalg_norm.default,
        torch.ops.aten.prod.dim_int,
        torch.ops.aten.rms_norm.default,
        torch.ops.aten.std.correction,
        torch.ops.aten.std.dim,
    )
)
#: Operators that stock annotates, but not where they write into their argument.
_ANNOTATED = named(
    "abs celu clamp cos elu erf exp floor hardsigmoid log neg reciprocal round rsqrt"
    " selu sigmoid sin sqrt tanh"
)


def spell_out_operators(
    model: GraphModule,
    *,
    keeps_costly: bool = False,
    keeps_norms: bool = False,
    in_groups: bool = False,
) -> None:
    """Write the operators of the tables with others, which compute the same float values.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place. Only
            values of 32 bits are quantised, so others keep their operators.
        keeps_costly: leave operators alone that int8 costs a decibel or more, for a profile that has float as well.
        keeps_norms: leave batch norms alone, which are folded when training is over, and the factors of other norms
            and the biases of recurrent steps parameters.
        in_groups: write instance norms with factors as norms of groups, which take an Ethos-U85 a third less time and
            an Ethos-U55 a third more, by Vela's estimate.
    """
    kept: set[object] = set()
    spellings = _SPELLINGS
    if keeps_costly:
        kept.update(_COSTLY)
    if keeps_norms:
        kept.add(torch.ops.aten.batch_norm.default)
        spellings = {**_SPELLINGS, **TRAINED_CELLS}
    if in_groups:
        spellings = {**spellings, **NORMS_IN_GROUPS}
    for module in graph_modules(model):
        is_changed = False
        for node in list(module.graph.nodes):
            if node.op != "call_function" or node.target in kept:
                continue
            if _spell_out(node, spellings):
                is_changed = True
        if is_changed:
            module.graph.eliminate_dead_code()
            module.recompile()


def _spell_out(node: Node, spellings: dict[Any, Any]) -> bool:
    """Write one operator with others, and tell whether it was."""
    if not _is_float(node):
        return False
    is_changed = _write_apart(node)
    spelling = spellings.get(node.target)
    if spelling is None:
        return is_changed
    arguments = arguments_by_name(node)
    written = spelling(Writer(node), *arguments.values())
    if written is None:
        return is_changed
    if isinstance(written, Node):
        node.replace_all_uses_with(written)
        node.graph.erase_node(node)
        return True
    return _replace_elements(node, written) or is_changed


def _write_apart(node: Node) -> bool:
    """Make an operator that writes into what nothing else reads give a value of its own; tell whether it does."""
    functional = functional_of(node)
    if functional is None:
        return False
    name = op_name(node).removesuffix("_")
    if functional not in _SPELLINGS and name not in _ANNOTATED:
        return False
    node.target = functional
    return True


def _is_float(node: Node) -> bool:
    """Return whether all tensors that an operator reads and gives are floats of 32 bits."""
    values = [source.meta.get("val") for source in node.all_input_nodes]
    result = node.meta.get("val")
    if isinstance(result, (tuple, list)):
        values += result[:1]
    else:
        values.append(result)
    for value in values:
        if isinstance(value, torch.Tensor) and value.dtype != torch.float32:
            return False
    return bool(values)


def _replace_elements(node: Node, written: list[Node]) -> bool:
    """Replace what is picked of an operator's results; tell whether all of it was written."""
    picks: dict[Node, Any] = {}
    for pick in node.users:
        if pick.target is not operator.getitem:
            return False
        picks[pick] = pick.args[1]
    for pick, place in picks.items():
        if pick.users and place >= len(written):
            return False
    for pick, place in picks.items():
        if pick.users:
            pick.replace_all_uses_with(written[place])
        node.graph.erase_node(pick)
    node.graph.erase_node(node)
    return True
