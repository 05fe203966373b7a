"""The reciprocal of a divisor of 16 bits that is broadcast is computed in two steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import QuantizationSpec

from safe_arm._compat.annotations import (
    ScaleAndZero,
    annotation_of,
    derived_spec,
    observed_by,
    specs_read,
)
from safe_arm._compat.release_1_4 import LARGEST_RESCALED
from safe_arm.core.ranges import Ranges
from safe_arm.quantizer.graphs.graph_edits import stored_tensor
from safe_arm.quantizer.precision.exact_products import exact_spec, terms_of
from safe_arm.quantizer.precision.fine_reciprocals import (
    of_rough_reciprocal,
    reciprocals,
)
from safe_arm.quantizer.precision.fine_sums import (
    ExponentialSumObserver,
    terms_of_softmax,
)
from safe_arm.quantizer.precision.int16_steps import (
    LARGEST,
    correct,
    in_8_bits,
    int16_spec,
    least_argument,
    leave_room,
    read_finely,
    read_roughly,
    up_to,
)
from safe_arm.quantizer.precision.two_steps import TwoSteps, give_spec

#: The product of a longer sum and its rough reciprocal overflows 32 bits.
_MOST_TERMS = LARGEST_RESCALED // 2**17
#: Parts of a step of 8 bits, one of which is the least argument.
_PARTS = 8
#: A divisor may be so many times less than what calibration showed.
_ROOM = 4.0
#: The largest correction: that of a divisor that is an eighth of a step of 8 bits. No code is a tie by this number.
_LARGEST_CORRECTION = 8.03


def keep_int16_reciprocals(model: GraphModule) -> None:
    """Quantise the reciprocals of divisors of 16 bits that are never negative in two steps.

    Args:
        model: an annotated float graph; changed in place.
    """
    ranges = Ranges(partial(_constants, model))
    for found in reciprocals(model):
        spec = int16_spec(found, *found.fine.users)
        if spec is not None and ranges.of(found.argument).low >= 0:
            _annotate(found, spec)


def _constants(model: GraphModule) -> dict[Node, Tensor]:
    """Return the values of the constants of a graph."""
    values = {}
    for node in model.graph.nodes:
        value = stored_tensor(node)
        if value is not None:
            values[node] = value
    return values


def _annotate(found: TwoSteps, spec: QuantizationSpec) -> None:
    place = read_roughly(found, spec)
    is_exact = 0 < terms_of_softmax(found.rough) <= _MOST_TERMS
    if is_exact:
        _sum_exactly(found, spec)
    else:
        leave_room(found, found.unit)
    rough = derived_spec(in_8_bits(spec), [place], of_rough_reciprocal)
    give_spec(found.rough, rough)
    give_spec(found.between, rough)
    if not is_exact:
        read_finely(found.between, spec, found.unit)
    read_finely(found.between, spec, found.fine)
    correct(found, spec, _LARGEST_CORRECTION)
    give_spec(found.fine, derived_spec(spec, [place], _of_reciprocal))


def _sum_exactly(found: TwoSteps, spec: QuantizationSpec) -> None:
    """Sum exponentials in 32 bits, and give them and their quotients, none of which is larger than 1, all codes."""
    (exponential,) = found.argument.all_input_nodes
    give_spec(exponential, up_to(spec, 1.0))
    for product in found.fine.users:
        if exponential in product.all_input_nodes:
            give_spec(product, up_to(spec, 1.0))
    terms = terms_of(found.argument)
    exact = exact_spec([(exponential, found.argument)])
    give_spec(found.argument, exact)
    rounded = observed_by(in_8_bits(spec), ExponentialSumObserver, terms=terms)
    specs_read(found.rough)[found.argument] = rounded
    annotation_of(found.unit).allow_implicit_sharing = False


def _of_reciprocal(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of a reciprocal for the observer of its divisor in 8 bits."""
    least, zero_point = least_argument(observers[0], _PARTS, _ROOM)
    return 1 / least / LARGEST, zero_point
