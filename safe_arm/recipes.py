"""Put safe_arm's classes into ExecuTorch's export recipes, or in place of stock instances anywhere."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any

from safe_arm._compat.installation import executorch_imported
from safe_arm.core.errors import UsageError

with executorch_imported():
    from torch.utils._pytree import tree_leaves, tree_map

    from safe_arm._compat.factories import compile_spec_of, custom_ops_of
    from safe_arm._compat.upstream import (
        EthosUCompileSpec,
        EthosUPartitioner,
        EthosUQuantizer,
        TosaCompileSpec,
        TOSAPartitioner,
        TOSAQuantizer,
        VgfCompileSpec,
        VgfPartitioner,
        VgfQuantizer,
    )
    from safe_arm.quantizer.safe_quantizers import (
        SafeEthosUQuantizer,
        SafeTOSAQuantizer,
        SafeVgfQuantizer,
    )
    from safe_arm.safe_partitioner import SafeArmPartitioner

#: Stock's partitioner, stock's quantiser and ours, by compile spec.
CLASSES: dict[type, tuple[type, type, type]] = {
    TosaCompileSpec: (TOSAPartitioner, TOSAQuantizer, SafeTOSAQuantizer),
    EthosUCompileSpec: (EthosUPartitioner, EthosUQuantizer, SafeEthosUQuantizer),
    VgfCompileSpec: (VgfPartitioner, VgfQuantizer, SafeVgfQuantizer),
}
#: Stock's partitioners, in whose place ``SafeArmPartitioner`` is put, and by stock's quantiser ours.
PARTITIONERS = tuple([partitioner for partitioner, *_ in CLASSES.values()])
QUANTIZERS = {stock: ours for _, stock, ours in CLASSES.values()}


def safe(recipe: Any, **options: Any) -> Any:
    """Return an ``ExportRecipe`` like another, with our partitioners and quantisers where it has Arm's.

    The other recipe is not changed. Other backends' partitioners stay, in their order. After the export
    ``recipe.lowering_recipe.partitioners[0].report`` says what was delegated and why the rest was not.

    Args:
        recipe: an ``executorch.export.ExportRecipe``, as ``ExportRecipe.get_recipe`` gives it or as you wrote it.
        options: keyword arguments of ``SafeArmPartitioner``, such as ``strict=True``.

    Raises:
        UsageError: it is not a recipe, or nothing in it is Arm's.
    """
    if not hasattr(recipe, "lowering_recipe"):
        kind = type(recipe).__name__
        raise UsageError(
            f"safe() takes an executorch.export.ExportRecipe, not {kind}; ExportRecipe.get_recipe makes one"
        )
    lowering = recipe.lowering_recipe
    quantization = recipe.quantization_recipe
    stock = getattr(lowering, "partitioners", None) or []
    quantizers = getattr(quantization, "quantizers", None) or []
    parts = [*quantizers, *tree_leaves(stock)]
    if not any(isinstance(part, (TOSAPartitioner, TOSAQuantizer)) for part in parts):
        raise UsageError(
            f"recipe {recipe.name!r} has no partitioner and no quantiser of the Arm backend to make safe"
        )
    if lowering:
        # A list, or a dict of lists by method.
        ours = tree_map(partial(safe_partitioner, **options), stock)
        lowering = replace(lowering, partitioners=ours)
    if quantization and quantizers:
        safe_quantizers = [safe_quantizer(q) for q in quantizers]
        quantization = replace(quantization, quantizers=safe_quantizers)
    return replace(recipe, lowering_recipe=lowering, quantization_recipe=quantization)


def safe_partitioner(partitioner: Any, **options: Any) -> Any:
    """Return a ``SafeArmPartitioner`` ours like a stock Arm partitioner; anything else as it is, subclasses included.

    Args:
        partitioner: a partitioner; its compile spec, additional checks and custom operators are kept.
        options: keyword arguments of ``SafeArmPartitioner``.
    """
    if type(partitioner) not in PARTITIONERS:
        return partitioner
    ours = SafeArmPartitioner(
        compile_spec_of(partitioner), partitioner.additional_checks, **options
    )
    for op in custom_ops_of(partitioner):
        ours.register_custom_partition_op(op)
    return ours


def safe_quantizer(quantizer: Any) -> Any:
    """Return a safe quantiser with the settings of a stock one; anything else as it is, subclasses included."""
    ours = QUANTIZERS.get(type(quantizer))
    if ours is None:
        return quantizer
    ours = ours(quantizer.tosa_spec)
    ours.__dict__.update(copy.deepcopy(vars(quantizer)))
    return ours
