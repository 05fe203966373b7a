"""The inverse root of a mean of squares, as in a norm, is computed in two steps of a mean in 32 bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import ObserverOrFakeQuantize
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    EdgeOrNode,
    QuantizationSpec,
    SharedQuantizationSpec,
)

from safe_arm._compat.annotations import (
    ScaleAndZero,
    annotation_of,
    int8_spec,
    spec_at,
    specs_read,
)
from safe_arm._compat.release_1_4 import LARGEST_RESCALED
from safe_arm.core.island import op_name
from safe_arm.core.operators import RESHAPES
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    is_call,
    operands_of,
    rewrite,
    squared,
    static_sizes,
    stored_number,
    tensor_of,
)
from safe_arm.quantizer.precision.exact_means import multiply_exactly
from safe_arm.quantizer.precision.exact_products import (
    CODE,
    CODES_APART,
    give_one_spec,
    is_int8,
    product_spec,
    step_of,
    terms_of,
    wide_spec,
)
from safe_arm.quantizer.precision.fine_roots import (
    LARGEST_CORRECTION,
    LARGEST_UNIT,
    REACH,
    annotate_unit,
    fine_roots,
    of_rough,
    refine_root,
)
from safe_arm.quantizer.precision.norm_domains import lowest_seen
from safe_arm.quantizer.precision.sums_of_squares import number_for
from safe_arm.quantizer.precision.two_steps import (
    TwoSteps,
    affine_spec,
    give_spec,
    is_broadcast,
    is_difference,
    is_of_int8,
    keep_fine,
    up_to,
)

_ATEN = torch.ops.aten
_PRODUCT = _ATEN.mul.Tensor
_SUM = _ATEN.sum.dim_IntList
_ADDITION = _ATEN.add.Tensor
_POWER = _ATEN.pow.Tensor_Scalar
_ROOT = _ATEN.rsqrt.default
#: Codes of the largest sum of squares, which is multiplied by a number of one code.
_CODES = (LARGEST_RESCALED + 1) / 2
#: The largest code of a root in 16 bits, and how many of them are one of its 11 bits. No code is a tie by this number.
_LARGEST, _COARSE = 255**2, 31.97
#: Values of which a mean is one of few, and the largest correction of their root as a multiple of that of many.
_FEW, _MOST_APART = 4, 4.0


@dataclass(frozen=True)
class MeanSquare:
    """A sum of squares times a number, raised by another.

    Attributes:
        value: what is squared.
        square: its square.
        total: the sum of squares, or of sums of rows of them.
        mean: its product with a constant; None if there is none.
        raised: the sum of that and a constant; None if there is none.
        factor: the first constant, 1 if there is none.
        least: the second one, 0 if there is none.
        is_plain: no reshape is in between, and the square is a product.
    """

    value: Node
    square: Node
    total: Node
    mean: Node | None
    raised: Node | None
    factor: float
    least: float
    is_plain: bool

    @property
    def terms(self) -> int:
        """The number of squares."""
        return math.prod(map(terms_of, self.sums))

    @property
    def sums(self) -> tuple[Node, ...]:
        """The sum of squares, and that of sums of rows if there are such."""
        rows: Any = self.total.args[0]
        if is_call(rows, _SUM):
            return rows, self.total
        return (self.total,)


def write_norm_roots(model: GraphModule) -> None:
    """Write the inverse root of a mean of squares in two steps, as ``r * rsqrt(y * r * r)`` with ``r = rsqrt(y)``.

    In 8 bits the inverse root of a row's variance is off by a percent, and with it the whole row.

    Args:
        model: a float graph that stock's passes have transformed; changed in place.
    """
    rewrite(model, _write, _ROOT)


def _write(root: Node) -> bool:
    """Write one inverse root, and tell whether it is that of a mean of squares."""
    found = mean_square_of(root.args[0])
    if found is None or not is_broadcast(root):
        return False
    if not found.is_plain and not _write_plainly(root, found):
        return False
    refine_root(root)
    return True


def mean_square_of(result: object) -> MeanSquare | None:
    """Return the mean of squares that a value is; None for any other.

    Args:
        result: a value of a float graph that stock's passes have transformed.
    """
    raised, least, node = _with_number(result, _ADDITION, 0.0)
    inner: Any = _unshaped(node)
    mean, factor, scaled = _with_number(inner, _PRODUCT, 1.0)
    total = _unshaped(scaled)
    if raised is None and mean is None:
        return None
    if least < 0 or factor <= 0 or not is_call(total, _SUM):
        return None
    rows: Any = total.args[0]
    square: Any = _unshaped(rows.args[0] if is_call(rows, _SUM) else rows)
    value = _squared(square)
    if value is None:
        return None
    for each in (inner, total, rows, square):
        if each is not result and len(each.users) != 1:
            return None
    is_product = square.target is _PRODUCT and square in (rows, *rows.args)
    is_plain = is_product and inner is node and total is scaled
    return MeanSquare(value, square, total, mean, raised, factor, least, is_plain)


def _with_number(
    result: object, target: object, neutral: float
) -> tuple[Node | None, float, object]:
    """Return an operator on a value and a constant, that constant, and the value; the value as it is for any other."""
    if not is_call(result, target) or result.kwargs:
        return None, neutral, result
    value, constant = result.args[:2]
    number = stored_number(constant)
    if number is None:
        return None, neutral, result
    return result, number, value


def _unshaped(value: object) -> object:
    """Return what a value is reshaped from, if nothing else reads it."""
    while isinstance(value, Node) and op_name(value) in RESHAPES:
        if len(value.users) != 1:
            return value
        value = value.args[0]
    return value


def _squared(square: object) -> Node | None:
    """Return what a value is the square of; None if it is none."""
    value, exponent = operands_of(square, _POWER)
    if exponent == 2:
        return value
    return squared(square)


def _write_plainly(root: Node, found: MeanSquare) -> bool:
    """Write a mean of squares as one of products without reshapes; tell whether that is possible."""
    value, result = tensor_of(found.value), tensor_of(root.args[0])
    summed = tensor_of(found.total.args[0])
    dims: Any
    dims, *keeps = found.total.args[1:]
    if value is None or result is None or summed is None or keeps != [True]:
        return False
    if static_sizes(found.value) is None:
        return False
    added = summed.dim() - value.dim()
    if added < 0 or tuple(summed.shape) != (*[1] * added, *value.shape):
        return False
    own = [dim % summed.dim() - added for dim in dims]
    shape = [1 if dim in own else size for dim, size in enumerate(value.shape)]
    if min(own) < 0 or list(result.shape) != shape:
        return False
    write = Writer(root)
    node = write(_SUM, write(_PRODUCT, found.value, found.value), own, True)
    if found.mean is not None:
        factor = number_for(write, node, found.factor, "factor")
        node = write(_PRODUCT, node, factor)
    if found.raised is not None:
        least = number_for(write, node, found.least, "least")
        node = write(_ADDITION, node, least)
    root.args = (node,)
    return True


def keep_norm_roots(model: GraphModule) -> None:
    """Quantise the inverse roots of means of squares in two steps; undo those that are not of 8 bits.

    Args:
        model: an annotated float graph; changed in place.
    """
    roots = [
        root for root in fine_roots(model) if mean_square_of(root.argument) is not None
    ]
    keep_fine(model, roots, _annotate, _may_be_exact)


def sizes_of_roots(model: GraphModule) -> dict[Node, int]:
    """Return the inverse roots in 32 bits of means of squares, each with its largest code."""
    sizes = {}
    for each in fine_roots(model):
        has_32_bits = getattr(spec_at(each.fine), "dtype", None) == torch.int32
        if has_32_bits and mean_square_of(each.argument) is not None:
            sizes[each.fine] = int(_LARGEST / _steps_in_code(each)) + 1
    return sizes


def read_roots_apart(roots: Iterable[Node]) -> None:
    """Let products read roots in the bits that they have there: torchao would take all bits.

    Args:
        roots: inverse roots in two steps; the annotations of their graph are changed.
    """
    for root in roots:
        for product in root.users:
            annotation = annotation_of(product)
            annotation.allow_implicit_sharing = False
            for factor in product.all_input_nodes:
                if factor is not root and _is_read_as_given(factor, product):
                    same = SharedQuantizationSpec(factor)
                    annotation.input_qspec_map[factor] = same


def _is_read_as_given(value: Node, reader: Node) -> bool:
    """Tell whether a node reads a value in the domain that the value has."""
    given = spec_at(value)
    if is_int8(value, reader):
        return int8_spec(given) is not None
    return isinstance(given, DerivedQuantizationSpec) and given is spec_at(
        (value, reader)
    )


def _may_be_exact(root: TwoSteps) -> bool:
    """Tell whether a sum of squares has 8 bits all over, and fits 32 bits if nothing of it is rounded."""
    found = mean_square_of(root.argument)
    assert found is not None
    nodes = [found.square, *found.sums]
    nodes += [node for node in (found.mean, found.raised) if node is not None]
    if not all(map(is_of_int8, nodes)):
        return False
    # The sum of rows may be read in larger steps.
    return terms_of(found.sums[0]) * _size_of(found.value) ** 2 <= LARGEST_RESCALED


def _size_of(value: Node) -> int:
    """Return the largest magnitude of a value in steps of what it is computed of."""
    return CODES_APART if is_difference(value) else CODE


def _steps_in_code(root: TwoSteps) -> float:
    """Return how many steps of its 16 bits a root is rounded to, so that a weight of 8 bits has room too."""
    for product in root.fine.users:
        for reader in product.users:
            if reader.target is _PRODUCT:
                return _COARSE
    return 1


def _annotate(root: TwoSteps, spec: QuantizationSpec) -> None:
    found = mean_square_of(root.argument)
    assert found is not None
    bound = MeanBound(found)
    keep_mean(found, bound)
    place = (root.argument, root.rough)
    annotate_unit(root, spec, _of_rough, bound.spec(bound.of_unit, place))
    if is_difference(found.value) and found.terms <= _FEW:
        give_spec(root.correction, affine_spec(spec, place, _of_correction))
    annotation_of(root.fine).output_qspec = product_spec(root.fine)
    for reader in root.fine.users:
        specs = specs_read(reader)
        specs[root.fine] = product_spec(root.fine, 1 / _steps_in_code(root))


def keep_mean(found: MeanSquare, bound: MeanBound) -> None:
    """Multiply a sum of squares and raise it in 32 bits."""
    codes = bound.spec(bound.of_sum)
    if found.mean is not None:
        codes = multiply_exactly(found.mean, found.total, codes)
    if found.raised is not None:
        give_one_spec(found.raised, codes)


class MeanBound:
    """The largest mean of squares that there can be, in whatever domain the values have.

    Args:
        found: the mean of squares.
        size: the largest magnitude of a value in codes; that of 8 bits if it is None.
        unit: the largest product of a mean and the square of its rough root.
        reach: the largest rough root as a multiple of the least; by what calibration showed if it is None.
    """

    def __init__(
        self,
        found: MeanSquare,
        size: int | None = None,
        unit: float = LARGEST_UNIT,
        reach: float | None = None,
    ) -> None:
        value: Any = found.value
        self._places: list[EdgeOrNode] = [(value, found.square)]
        if size is None and is_difference(value):
            # The difference may be computed in parts of a step.
            self._places = [value.args[0]]
        self._size = found.terms * (size or _size_of(value)) ** 2
        self._unit = unit
        self._reach = reach
        self._factor = found.factor
        self._least = found.least

    def spec(
        self,
        scale_of: Callable[[Sequence[Any]], Tensor],
        *places: EdgeOrNode,
    ) -> DerivedQuantizationSpec:
        """Return the specification of integers in a scale that is computed of that of the values and of others."""
        return wide_spec([*self._places, *places], scale_of)

    def of_sum(self, observers: Sequence[Any]) -> Tensor:
        """Return the scale of the sum: its product with the factor's 8 bits, and the least, fit 32 bits."""
        return self._largest(observers[0]) / self._factor / _CODES

    def of_unit(self, observers: Sequence[Any]) -> Tensor:
        """Return the scale of the mean, so that its product with the square of its rough root fits 32 bits."""
        value, mean = observers
        step, zero_point = mean.calculate_qparams()
        seen = step * (mean.quant_max - zero_point)
        largest = torch.maximum(self._largest(value), seen * self._unit)
        reach = self._reach or _reach(mean)
        return largest * (CODE / reach) ** 2 / LARGEST_RESCALED

    def _largest(self, value: ObserverOrFakeQuantize) -> Tensor:
        return self._size * step_of(value) ** 2 * self._factor + self._least


def _reach(mean: ObserverOrFakeQuantize) -> Tensor:
    """Return the inverse root of the least mean as a multiple of that of the largest."""
    return _spread(mean).sqrt().clamp(1.0, REACH)


def _spread(mean: ObserverOrFakeQuantize) -> Tensor:
    """Return the largest mean as a multiple of the least; infinite if that is not known."""
    step, zero_point = mean.calculate_qparams()
    largest = step * (mean.quant_max - zero_point)
    lowest = lowest_seen(mean)
    if lowest is None:
        return torch.full_like(step, torch.inf)
    return largest / lowest.to(step)


def _of_rough(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of a rough root for the observer of its mean."""
    return of_rough(observers, _reach(observers[0]))


def _of_correction(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of a correction of few values for the observer of their mean.

    They may all but agree: their rough root is then less than theirs by a factor of up to 8.
    """
    ratio = _spread(observers[0]).sqrt() / REACH
    scale, zero_point = up_to(LARGEST_CORRECTION, observers[0])
    return scale * ratio.clamp(1.0, _MOST_APART), zero_point
