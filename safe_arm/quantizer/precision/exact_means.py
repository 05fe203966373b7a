"""The mean that a norm subtracts is exact until it is subtracted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    SharedQuantizationSpec,
)

from safe_arm._compat.annotations import (
    annotation_of,
    int8_spec,
)
from safe_arm.core.island import op_name
from safe_arm.core.operators import RESHAPES
from safe_arm.quantizer.graphs.graph_edits import (
    is_call,
    operands_of,
    stored_number,
)
from safe_arm.quantizer.precision.exact_products import (
    CODE,
    INT32,
    exact_spec,
    number_spec,
    product_spec,
    terms_of,
)
from safe_arm.quantizer.precision.two_steps import is_difference, is_of_int8

_ATEN = torch.ops.aten
_SUM = _ATEN.sum.dim_IntList
_PRODUCT = _ATEN.mul.Tensor
#: The most by which a factor times the number of values is off 1.
_ROUNDED = 1e-6
#: A mean of codes may be in the middle of two parts of a step, which TOSA rounds otherwise; this share of it is not.
_NO_TIE = 1 - 1e-5


@dataclass(frozen=True)
class Mean:
    """The mean that is subtracted from the values it is taken of.

    Attributes:
        total: the sum of the values.
        scaled: its product with their share.
        views: reshapes of that, the last of which is subtracted.
    """

    total: Node
    scaled: Node
    views: tuple[Node, ...]


def means_that_fit(model: GraphModule) -> dict[Node, Mean]:
    """Return the differences from means of 8 bits that fit 32 bits, each with the mean.

    If the mean is exact, such a difference has no more than the 255 codes that the values have, but for its rounding.

    Args:
        model: an annotated float graph.
    """
    found = {}
    for node in model.graph.nodes:
        if is_difference(node):
            mean = mean_subtracted(node, is_of_int8)
            if mean is not None and terms_of(mean.total) * CODE <= INT32.max:
                found[node] = mean
    return found


def keep_means_exact(means: Mapping[Node, Mean]) -> None:
    """Sum values, and multiply the sum by their share, in 32 bits, where the mean is subtracted in 32 bits.

    Stock rounds the sum to int8, and the mean once more. Values that are all alike then differ from their mean.

    Args:
        means: differences, each with the mean; the annotations of their graph are changed.
    """
    first: dict[Node, Node] = {}
    for difference, mean in means.items():
        source: Any = difference.args[0]
        annotation = annotation_of(difference)
        specs = annotation.input_qspec_map
        if not isinstance(specs.get(difference.args[1]), DerivedQuantizationSpec):
            continue
        keep_mean_exact(mean)
        # The mean is in finer codes than it is subtracted in; torchao would take it as it is.
        annotation.allow_implicit_sharing = False
        if source in first:
            specs[source] = SharedQuantizationSpec((source, first[source]))
        first.setdefault(source, difference)


def multiply_exactly(
    product: Node, value: Node, exact: DerivedQuantizationSpec, share: float = 1.0
) -> DerivedQuantizationSpec:
    """Multiply a value in 32 bits by a constant in the one domain in which that is not rounded.

    In stock's domain, whose step has a least size, a 768th is off by 0.4 %.

    Args:
        product: a multiplication by a constant in 8 bits; its annotation is changed.
        value: what it multiplies.
        exact: the specification of the value.
        share: what to multiply the constant by.

    Returns:
        DerivedQuantizationSpec: the specification of the product.
    """
    annotation = annotation_of(product)
    annotation.allow_implicit_sharing = False
    specs = annotation.input_qspec_map
    specs[value] = exact
    factor: Any = product.args[1]
    spec = int8_spec(specs.get(factor))
    number = stored_number(factor)
    if spec is not None and number is not None and number > 0:
        specs[factor] = number_spec(number * share)
    annotation.output_qspec = product_spec(product)
    return annotation.output_qspec


def mean_subtracted(difference: Node, is_wanted: Callable[[Node], bool]) -> Mean | None:
    """Return the mean in a difference; None if it is read by anything else.

    Args:
        difference: a difference from a mean.
        is_wanted: tells of each operator of the mean whether its annotation is as it has to be.
    """
    source, subtrahend = difference.args[:2]
    assert isinstance(subtrahend, Node)
    for reader in subtrahend.users:
        if reader.target is not difference.target or reader.args[0] is not source:
            return None
    views: list[Node] = []
    scaled: Any = subtrahend
    while op_name(scaled) in RESHAPES:
        views.insert(0, scaled)
        scaled = scaled.args[0]
    total, factor = operands_of(scaled, _PRODUCT)
    if not is_call(total, _SUM):
        return None
    for each in (total, scaled, *views):
        if each is not subtrahend and len(each.users) != 1:
            return None
        if not is_wanted(each):
            return None
    terms = terms_of(total)
    share = stored_number(factor)
    if share is None or abs(share * terms - 1) > _ROUNDED:
        return None
    return Mean(total, scaled, tuple(views))


def keep_mean_exact(mean: Mean, steps: float = 1.0) -> None:
    """Sum values, and multiply the sum by their share, in 32 bits.

    Args:
        mean: the mean; the annotations of its operators are changed.
        steps: the number of steps of the sum, as it is multiplied, in one of the values.
    """
    place = (mean.total.all_input_nodes[0], mean.total)
    exact = exact_spec([place])
    annotation_of(mean.total).output_qspec = exact
    read = exact if steps == 1 else exact_spec([place], steps)
    product = multiply_exactly(mean.scaled, mean.total, read, _NO_TIE)
    last = mean.scaled
    for view in mean.views:
        annotation = annotation_of(view)
        annotation.input_qspec_map[last] = product
        annotation.output_qspec = product
        last = view
