"""Operators that no annotator knows are written with operators that one does.

Stock quantises what is in its annotators' tables; any other operator stays float and cuts the delegate in two, though
TOSA has an operator for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import arguments_by_name, graph_modules, op_name
from safe_arm.core.operators import named
from safe_arm.quantizer.graphs.graph_edits import Writer, replace_results, rewrite_nodes
from safe_arm.quantizer.graphs.own_writes import functional_of
from safe_arm.quantizer.spellings.projected_layers import PROJECTED
from safe_arm.quantizer.spellings.spelled_activations import ACTIVATIONS
from safe_arm.quantizer.spellings.spelled_arithmetic import (
    ARITHMETIC,
    ARITHMETIC_OF_NODES,
)
from safe_arm.quantizer.spellings.spelled_cells import CELLS, TRAINED_CELLS
from safe_arm.quantizer.spellings.spelled_convolutions import (
    CONVOLUTIONS,
    PADDED_CONVOLUTIONS,
)
from safe_arm.quantizer.spellings.spelled_folds import FOLDS
from safe_arm.quantizer.spellings.spelled_grids import GRIDS
from safe_arm.quantizer.spellings.spelled_kernels import KERNELS
from safe_arm.quantizer.spellings.spelled_losses import LOSSES
from safe_arm.quantizer.spellings.spelled_norms import (
    BATCH_NORMS,
    NORMS,
    NORMS_IN_GROUPS,
)
from safe_arm.quantizer.spellings.spelled_pools import POOLS
from safe_arm.quantizer.spellings.spelled_products import CONTRACTIONS, PRODUCTS
from safe_arm.quantizer.spellings.spelled_resizes import RESIZES
from safe_arm.quantizer.spellings.spelled_roundings import ROUNDINGS
from safe_arm.quantizer.spellings.spelled_scans import SCANS
from safe_arm.quantizer.spellings.spelled_views import VIEWS
from safe_arm.quantizer.spellings.spelled_volumes import VOLUMES

_ATEN = torch.ops.aten

_ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
#: Functions of tensors, which are traced.
_FUNCTIONS: dict[Any, Any] = {
    **ACTIVATIONS,
    **ARITHMETIC,
    **CELLS,
    **PROJECTED,
    **FOLDS,
    **LOSSES,
    **NORMS,
    **PADDED_CONVOLUTIONS,
    **POOLS,
    **PRODUCTS,
    **ROUNDINGS,
    **SCANS,
    **VIEWS,
    **VOLUMES,
}
#: Functions of nodes, each with a writer before its arguments.
_WRITERS: dict[Any, Any] = {
    **ARITHMETIC_OF_NODES,
    **BATCH_NORMS,
    **CONTRACTIONS,
    **CONVOLUTIONS,
    **GRIDS,
    **KERNELS,
    **RESIZES,
}
#: Operators that int8 costs a decibel or more beside float. Where the profile has float, they need not be quantised to
#: be in the delegate.
_COSTLY = frozenset(
    (
        _ATEN.addcdiv.default,
        _ATEN.addcmul.default,
        _ATEN.baddbmm.default,
        _ATEN.lerp.Scalar,
        _ATEN.lerp.Tensor,
        _ATEN.linalg_norm.default,
        _ATEN.prod.dim_int,
        _ATEN.rms_norm.default,
        _ATEN.std.correction,
        _ATEN.std.dim,
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
        keeps_norms: leave batch norms alone, which are folded when training is over, and transposed convolutions of
            volumes, whose weights are written in another order, and the factors of other norms and the biases of
            recurrent steps parameters.
        in_groups: write instance norms with factors as norms of groups, which take an Ethos-U85 a third less time and
            an Ethos-U55 a third more, by Vela's estimate.
    """
    kept: set[object] = set()
    functions, writers = _FUNCTIONS, _WRITERS
    if keeps_costly:
        kept.update(_COSTLY)
    if keeps_norms:
        kept.update((_ATEN.batch_norm.default, _ATEN.conv_transpose3d.input))
        writers = {**_WRITERS, **TRAINED_CELLS}
    if in_groups:
        functions = {**_FUNCTIONS, **NORMS_IN_GROUPS}

    def spell_out(node: Node) -> bool:
        if node.op != "call_function" or node.target in kept:
            return False
        return _spell_out(node, functions, writers)

    for module in graph_modules(model):
        rewrite_nodes(module, spell_out)


def _spell_out(node: Node, functions: dict[Any, Any], writers: dict[Any, Any]) -> bool:
    """Write one operator with others, and tell whether it was."""
    if not _is_float(node):
        return False
    is_changed = _write_apart(node)
    before = node.prev
    written = _written(node, functions, writers)
    if written is None:
        return is_changed
    if replace_results(node, written):
        return True
    while node.prev is not before:
        node.graph.erase_node(node.prev)
    return is_changed


def _written(node: Node, functions: dict[Any, Any], writers: dict[Any, Any]) -> Any:
    """Write others before an operator and return their result or list of results; None if it is left alone."""
    target: Any = node.target
    write = Writer(node)
    if target in writers:
        return writers[target](write, *arguments_by_name(node).values())
    if target in functions:
        arguments = arguments_by_name(node).values()
        return write.compute(functions[target], list(arguments))
    return None


def _write_apart(node: Node) -> bool:
    """Make an operator that writes into what nothing else reads give a value of its own; tell whether it does."""
    functional = functional_of(node)
    if functional is None:
        return False
    name = op_name(node).removesuffix("_")
    is_spelled = functional in _FUNCTIONS or functional in _WRITERS
    if not is_spelled and name not in _ANNOTATED:
        return False
    node.target = functional
    return True


def _is_float(node: Node) -> bool:
    """Return whether all that an operator reads and gives are floats of 32 bits; attention may have a boolean mask."""
    values = [source.meta.get("val") for source in node.all_input_nodes]
    result = node.meta.get("val")
    if isinstance(result, (tuple, list)):
        values += result[:1]
    else:
        values.append(result)
    kinds = {torch.float32}
    if node.target is _ATTENTION:
        kinds.add(torch.bool)
    for value in values:
        if isinstance(value, torch.Tensor) and value.dtype not in kinds:
            return False
    return bool(values)
