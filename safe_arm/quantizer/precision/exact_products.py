"""Keep products that are only summed exact until their sum is rounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import ObserverOrFakeQuantize
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    EdgeOrNode,
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    QuantizationSpecBase,
)

from safe_arm._compat.annotations import (
    Q_ANNOTATION_KEY,
    ScaleAndZero,
    annotation_of,
    int8_spec,
    is_unsigned,
    plain_spec,
    spec_at,
    specs_read,
)
from safe_arm._compat.release_1_4 import LARGEST_RESCALED
from safe_arm.core.island import op_name
from safe_arm.core.operators import RESHAPES
from safe_arm.quantizer.graphs.graph_edits import squared, tensor_of

_ATEN = torch.ops.aten

_PRODUCT = _ATEN.mul.Tensor
_MATMUL = _ATEN.bmm.default
_SUM = _ATEN.sum.dim_IntList
_DIFFERENCE = _ATEN.sub.Tensor
_INDICES = (_ATEN.argmax.default, _ATEN.argmin.default)
INT32 = torch.iinfo(torch.int32)
#: Largest magnitude of a code of 8 bits less its zero point, and of the difference of two.
CODE, CODES_APART = 255, 510
#: Steps of a difference from a mean in one of the minuend, at most; with 4 a product loses 0.1 dB to them.
_MOST_STEPS = 16


def keep_products_exact(
    model: GraphModule,
    finer: bool = True,
    roots: Mapping[Node, int] | None = None,
    from_exact_means: Container[Node] = (),
) -> dict[Node, int]:
    """Keep products of int8 values, and their sums, in 32 bits and in the scale that TOSA computes in.

    Stock rounds each product to int8 before it is summed, and for a variance each difference from the mean before that.
    Here what reads the sum rounds it. A difference from a mean is computed in finer steps than the values have: it is
    not rounded once more, and the mean hardly.

    Args:
        model: an annotated float graph; changed in place.
        finer: also where an Ethos-U85 takes much longer for it by Vela's estimate, for a decibel or two. It is for a
            difference of which no variance is computed, as in the rest of a layer norm, that it takes a third more
            cycles, and the other targets 2 %. It transposes what is summed over any dimension but the last, which for
            products of two values in 32 bits takes up to 3.4 times the cycles.
        roots: factors of norms, and differences, that have 32 bits already, with their largest magnitude.
        from_exact_means: differences from means that have 32 bits.

    Returns:
        dict[Node, int]: what is kept in 32 bits, with its largest magnitude.
    """
    largest: dict[Node, int] = dict(roots or {})
    steps = _steps_of_differences(model, finer, largest, from_exact_means)
    for node in model.graph.nodes:
        if not is_annotated(node):
            continue
        if node in steps:
            codes = _codes_of(node, from_exact_means)
            _keep_difference(node, steps[node], codes, largest)
        elif node.target is _PRODUCT:
            if finer or is_square(node) or not _is_summed_across(node):
                _keep_product(node, largest)
        elif node.target is _SUM:
            _keep_sum(node, largest)
    return largest


def _steps_of_differences(
    model: GraphModule,
    finer: bool,
    largest: Mapping[Node, int],
    from_exact_means: Container[Node],
) -> dict[Node, int]:
    """Return the differences from a mean that stay in 32 bits, each with its number of steps in one of the minuend.

    It is the same for all differences from means of a value: torchao gives what is read with as many bits one scale.
    """
    sources: dict[Node, dict[Node, int]] = {}
    for node in model.graph.nodes:
        if node.target is not _DIFFERENCE or not is_annotated(node):
            continue
        if is_centred(node) and (finer or _has_square(node)):
            codes = _codes_of(node, from_exact_means)
            steps = _most_steps(node, codes, largest)
            sources.setdefault(node.args[0], {})[node] = steps
    found: dict[Node, int] = {}
    for differences in sources.values():
        least = min(filter(None, differences.values()), default=0)
        for difference, steps in differences.items():
            # In steps of the minuend, a product loses to the rounded mean what it gains.
            if steps and (least > 1 or _has_square(difference)):
                found[difference] = least
    return found


def _most_steps(difference: Node, codes: int, largest: Mapping[Node, int]) -> int:
    """Return the number of steps in one of the minuend that all readers of a difference can take; 0 for none."""
    for steps in range(_MOST_STEPS, 0, -1):
        size = steps * codes + 1
        if all(
            _takes_difference(reader, difference, size, largest)
            for reader in difference.users
        ):
            return steps
    return 0


def _codes_of(difference: Node, from_exact_means: Container[Node]) -> int:
    """Return the largest magnitude of a difference, in codes of the minuend, but for its rounding."""
    return CODE if difference in from_exact_means else CODES_APART


def _takes_difference(
    reader: Node, difference: Node, size: int, largest: Mapping[Node, int]
) -> bool:
    if is_square(reader):
        return is_summed(reader, size**2, _most_of_sums(reader))
    if not _takes(reader, difference, size, largest):
        return False
    roots = [largest.get(factor, 0) for factor in reader.all_input_nodes]
    return max(roots) * size * _code_after(reader) <= INT32.max // 2


def _most_of_sums(square: Node) -> int:
    """Return the largest magnitude that sums of a square may have: those of rows are rescaled for the sum of all."""
    for rows in square.users:
        if any(reader.target is _SUM for reader in rows.users):
            return LARGEST_RESCALED
    return INT32.max


def _code_after(product: Node) -> int:
    """Return the largest magnitude of what a product is multiplied by next; 1 for none."""
    return CODE if any(map(is_product, product.users)) else 1


def _has_square(difference: Node) -> bool:
    return any(map(is_square, difference.users))


def _keep_difference(
    difference: Node, steps: int, codes: int, largest: dict[Node, int]
) -> None:
    """Subtract in 32 bits, in some steps of the minuend, for a variance and what multiplies the difference besides."""
    spec = exact_spec([difference.args[0]], steps)
    annotation = annotation_of(difference)
    annotation.input_qspec_map = dict.fromkeys(annotation.input_qspec_map, spec)
    _keep(difference, spec, steps * codes + 1, largest)
    for reader in difference.users:
        if is_square(reader):
            specs_read(reader)[difference] = spec


def _keep_product(product: Node, largest: dict[Node, int]) -> None:
    size = product_size(product, largest)
    if not size:
        return
    exact = [each for each in product.args[:2] if _size_in(product, each, largest)]
    is_kept = is_summed(product, size)
    if exact and not is_kept and not is_square(product):
        is_kept = _is_multiplied(product, size, largest)
    if not is_kept:
        return
    _keep(product, product_spec(product), size, largest)


def product_size(product: Node, largest: dict[Node, int]) -> int:
    """Return the largest magnitude of a product in 32 bits; 0 if a factor has neither 8 bits nor 32.

    Args:
        product: a multiplication.
        largest: the largest magnitude of what is kept in 32 bits.
    """
    size = 1
    for factor in product.args[:2]:
        size *= _size_of_factor(product, factor, largest)
    return size


def _size_of_factor(product: Node, factor: object, largest: Mapping[Node, int]) -> int:
    size = _size_in(product, factor, largest)
    if not size and is_int8(factor, product):
        return CODE
    return size


def is_matmul(node: Node) -> bool:
    """Tell whether a node multiplies matrices of 8 bits and has an output with a specification of its own."""
    if node.target is not _MATMUL or not is_annotated(node):
        return False
    return all(is_int8(factor, node) for factor in node.args)


def matmul_size(matmul: Node) -> int:
    """Return the largest magnitude of a product of matrices; more than fit 32 bits if it is not known."""
    left = tensor_of(matmul.args[0])
    terms = None if left is None else left.shape[-1]
    if not isinstance(terms, int):
        return INT32.max
    return terms * CODE**2


def _is_multiplied(product: Node, size: int, largest: Mapping[Node, int]) -> bool:
    """Tell whether all that reads a product up to a size multiplies it by 8 bits."""
    for reader in product.users:
        if not _takes(reader, product, size, largest):
            return False
    return bool(product.users)


def _keep_sum(summing: Node, largest: dict[Node, int]) -> None:
    product = summing.args[0]
    terms = terms_of(summing)
    size = _size_in(summing, product, largest) * terms
    if not isinstance(product, Node) or not size:
        return
    if size > INT32.max:  # It is the sum of rows.
        room = INT32.max - terms
        specs_read(summing)[product] = exact_spec([product], room / size)
        annotation_of(summing).allow_implicit_sharing = False
        size = INT32.max
    _keep(summing, exact_spec([(product, summing)]), size, largest)


def _keep(
    node: Node, spec: DerivedQuantizationSpec, size: int, largest: dict[Node, int]
) -> None:
    """Give what a node computes 32 bits, up to a size, also where it is read by what can take them."""
    largest[node] = size
    codes = annotation_of(node).output_qspec
    annotation_of(node).output_qspec = spec
    for reader in node.users:
        if reader.target is _SUM or _takes(reader, node, size, largest):
            specs_read(reader)[node] = spec
        elif reader.target in _INDICES:
            # Stock annotates no argmax, which TOSA has of 8 and 16 bits.
            reads = QuantizationAnnotation({node: codes}, _annotated=True)
            reader.meta[Q_ANNOTATION_KEY] = reads


def is_annotated(node: Node) -> bool:
    """Tell whether a node's output has a specification of its own."""
    return isinstance(spec_at(node), QuantizationSpec)


def is_product(node: Node) -> bool:
    """Tell whether a node is a multiplication whose output has a specification of its own."""
    return node.target is _PRODUCT and is_annotated(node)


def is_square(node: Node) -> bool:
    """Tell whether a node multiplies a value by itself, and its output has a specification of its own."""
    return is_product(node) and squared(node) is not None


def _size_in(reader: Node, value: object, largest: Mapping[Node, int]) -> int:
    """Return the largest magnitude of a value that a node reads in 32 bits; 0 for any other."""
    specs = specs_read(reader)
    if not isinstance(value, Node):
        return 0
    if not isinstance(specs.get(value), DerivedQuantizationSpec):
        return 0
    return largest.get(value, 0)


def is_int8(value: object, reader: Node) -> bool:
    """Tell whether a node reads a value as int8."""
    specs = specs_read(reader)
    return int8_spec(specs.get(value)) is not None and not is_unsigned(value)


def _takes(reader: Node, value: Node, size: int, largest: Mapping[Node, int]) -> bool:
    """Tell whether a product of a value in 32 bits and another, of 8 bits or a factor of a norm, fits 32 bits."""
    if not is_product(reader):
        return False
    others = [factor for factor in reader.args[:2] if factor is not value]
    if len(others) != 1:
        return False
    factor = _size_of_factor(reader, others[0], largest)
    return 0 < factor * size <= INT32.max


def is_exact_sum(value: Node) -> bool:
    """Tell whether a value is a sum of squares of 8 bits that fits 32 bits."""
    if value.target is not _SUM:
        return False
    if squared(value.args[0]) is None:
        return False
    return fits_exactly(value)


def fits_exactly(total: Node) -> bool:
    """Tell whether a sum of as many squares of 8 bits fits 32 bits."""
    return terms_of(total) * CODE**2 <= LARGEST_RESCALED


def is_summed(product: Node, size: int, most: int = INT32.max) -> bool:
    """Tell whether all that reads a product up to a size sums it, and no sum is larger than the most there may be."""
    for reader in product.users:
        if reader.target is not _SUM or not is_annotated(reader):
            return False
        if terms_of(reader) * size > most:
            return False
    return bool(product.users)


def _is_summed_across(product: Node) -> bool:
    """Tell whether a product is summed over another dimension than the last."""
    value = tensor_of(product)
    if value is None:
        return False
    rows = value.shape[:-1]
    for reader in product.users:
        result = tensor_of(reader)
        if reader.target is not _SUM or result is None:
            continue
        if result.shape[: len(rows)] != rows:
            return True
    return False


def terms_of(summing: Node) -> int:
    """Return how many values a sum adds up; more than fit 32 bits if that is not known."""
    whole = tensor_of(summing.args[0])
    if whole is None:
        return INT32.max
    dims: Any = (*summing.args, None)[1]
    terms = 1
    for dim in dims or range(whole.dim()):
        size = whole.shape[dim]
        if not isinstance(size, int) or size <= 0:
            return INT32.max
        terms *= size
    return terms


def is_centred(difference: Node) -> bool:
    """Tell whether a value is an int8 tensor less its own mean."""
    source, mean = difference.args[:2]
    if not isinstance(source, Node) or not isinstance(mean, Node):
        return False
    if source is mean or difference.kwargs:
        return False
    spec = plain_spec(spec_at(source))
    if spec is None or spec.dtype != torch.int8:
        return False
    for value in (source, mean):
        if not is_int8(value, difference):
            return False
    # Stock has taken the mean apart; the source may be a product too, as of a gate.
    while mean is not source and _is_of_mean(mean):
        before = mean.args[0]
        if not isinstance(before, Node):
            break
        mean = before
    while source is not mean and op_name(source) in RESHAPES:
        source = source.all_input_nodes[0]
    return source is mean


def _is_of_mean(node: Node) -> bool:
    """Tell whether an operator is one of those that stock writes a mean with."""
    return node.target in (_PRODUCT, _SUM) or op_name(node) in RESHAPES


def exact_spec(places: list[EdgeOrNode], steps: float = 1) -> DerivedQuantizationSpec:
    """Return the specification of integers whose scale is the product of those at some places.

    Args:
        places: where the factors are observed.
        steps: the number of steps in one of that product.
    """
    return wide_spec(places, partial(_of_product, steps=steps))


def product_spec(product: Node, steps: float = 1) -> DerivedQuantizationSpec:
    """Return the specification of the integers that a product is computed in, in a number of steps."""
    return exact_spec([(factor, product) for factor in product.args[:2]], steps)


def give_one_spec(node: Node, spec: QuantizationSpecBase) -> None:
    """Quantise what a node reads and what it gives by one specification, whatever else reads it."""
    annotation = annotation_of(node)
    annotation.input_qspec_map = dict.fromkeys(node.all_input_nodes, spec)
    annotation.output_qspec = spec
    annotation.allow_implicit_sharing = False


def number_spec(step: float) -> FixedQParamsQuantizationSpec:
    """Return the specification of a number of 8 bits with a step of its own."""
    return FixedQParamsQuantizationSpec(
        dtype=torch.int8,
        scale=step,
        zero_point=0,
        quant_min=-127,
        quant_max=127,
        qscheme=torch.per_tensor_symmetric,
    )


def wide_spec(
    places: Sequence[EdgeOrNode], scale_of: Callable[[Sequence[Any]], Tensor]
) -> DerivedQuantizationSpec:
    """Return the specification of integers in a scale that is computed of the observers at some places."""
    return DerivedQuantizationSpec(
        derived_from=list(places),
        derive_qparams_fn=partial(_around_zero, scale_of),
        dtype=torch.int32,
        quant_min=INT32.min + 1,
        quant_max=INT32.max,
        qscheme=torch.per_tensor_symmetric,
    )


def _around_zero(
    scale_of: Callable[[Sequence[Any]], Tensor], observers: Sequence[Any]
) -> ScaleAndZero:
    scale = scale_of(observers)
    return scale, torch.zeros_like(scale, dtype=torch.int32)


def _of_product(observers: Sequence[Any], steps: float) -> Tensor:
    """Return the product of scales over a number of steps."""
    scale: Any = math.prod(map(step_of, observers))
    return scale / steps  # type: ignore[no-any-return]


def step_of(observer: ObserverOrFakeQuantize) -> Tensor:
    """Return the scale of an observer."""
    scale: Tensor = observer.calculate_qparams()[0]
    return scale
