"""The scores of an attention stay in 32 bits until their distance to the largest is rounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.observer import MinMaxObserver

from safe_arm._compat.annotations import (
    Q_ANNOTATION_KEY,
    ScaleAndZero,
    annotation_of,
    int8_spec,
    is_calibrated,
    observed_by,
)
from safe_arm._compat.release_1_4 import LARGEST_RESCALED
from safe_arm.core.attributes import stored_value
from safe_arm.core.island import op_name
from safe_arm.quantizer.graphs.graph_edits import (
    MOVES,
    calls,
    is_read_once,
    is_stored,
    operands_of,
)
from safe_arm.quantizer.graphs.mask_bounds import MASKED, is_bound
from safe_arm.quantizer.precision.added_products import is_number
from safe_arm.quantizer.precision.exact_products import (
    is_int8,
    is_matmul,
    matmul_size,
    number_spec,
    product_spec,
)

_ATEN = torch.ops.aten
_MAXIMUM = _ATEN.amax.default
_DIFFERENCE = _ATEN.sub.Tensor
_EXPONENTIAL = _ATEN.exp.default
_PRODUCT = _ATEN.mul.Tensor
_MASK = _ATEN.minimum.default
#: Largest difference of two scores. A masked one is as far from 0, and their difference is rescaled.
_MOST = LARGEST_RESCALED // 2
#: An exponential of a larger distance has code 0 of 255.
_FARTHEST = 6.3
#: The largest distance as a multiple of the largest that was seen.
_ROOM = 1.25


class DistanceObserver(MinMaxObserver):
    """Gives distances a domain that ends at 0, and begins where their exponentials do, or a little below the least.

    Those of masked scores do not count.
    """

    def forward(self, x_orig: Tensor) -> Tensor:
        """Observe distances, and return them."""
        super().forward(x_orig[x_orig > MASKED])
        return x_orig

    def calculate_qparams(self) -> ScaleAndZero:
        """Return scale and zero point of the domain."""
        lowest = torch.clamp(self.min_val * _ROOM, min=-_FARTHEST, max=0.0)
        return self._calculate_qparams(lowest, torch.zeros_like(lowest))


def keep_scores_fine(model: GraphModule) -> None:
    """Keep in 32 bits the products of matrices of which a softmax is computed, and their distances to the largest.

    Stock rounds the scores to 8 bits over all their range, of which exponentials tell the upper 6 apart.

    Args:
        model: an annotated float graph; its annotations are changed. Scores that anything else reads keep theirs.
    """
    for distance in calls(model, _DIFFERENCE):
        chain = _chain_of(distance)
        if chain is None:
            continue
        spec = int8_spec(annotation_of(chain[0]).output_qspec)
        if spec is None or not is_calibrated(spec):
            continue
        of_distance = annotation_of(distance).output_qspec
        if getattr(of_distance, "dtype", torch.int8) != torch.int8:
            continue  # The user gave the softmax more bits.
        (exponential,) = distance.users
        annotation = annotation_of(exponential)
        annotation.input_qspec_map[distance] = observed_by(spec, DistanceObserver)
        annotation.allow_implicit_sharing = False
        _widen(chain, distance)


def _chain_of(distance: Node) -> list[Node] | None:
    """Return what scores are computed with whose distance to their maximum an exponential reads, the matmul first."""
    scores: Any
    maximum: Any
    scores, maximum = distance.args[:2]
    if operands_of(maximum, _MAXIMUM)[0] is not scores:
        return None
    if set(scores.users) != {maximum, distance} or len(maximum.users) != 1:
        return None
    if [reader.target for reader in distance.users] != [_EXPONENTIAL]:
        return None
    if not all(map(_is_plain, (distance, maximum, *distance.users))):
        return None
    chain = [scores]
    while not is_matmul(chain[0]):
        if not _keeps_scores(chain[0]):
            return None
        before = chain[0].args[0]
        if not is_read_once(before):
            return None
        chain.insert(0, before)
    return chain if matmul_size(chain[0]) <= _MOST else None


def _is_plain(node: Node) -> bool:
    return Q_ANNOTATION_KEY in node.meta and not node.kwargs


def _keeps_scores(node: Node) -> bool:
    """Tell whether a node moves scores, multiplies them by a number, or masks them."""
    if not _is_plain(node):
        return False
    if op_name(node) in MOVES:
        return True
    if node.target not in (_PRODUCT, _MASK):
        return False
    other = node.args[1]
    if not is_stored(other):
        return False
    value = stored_value(other)
    if node.target is _PRODUCT:
        return is_number(other) and is_int8(other, node) and bool(value)
    return is_bound(value)


def _widen(chain: Sequence[Node], distance: Node) -> None:
    """Compute scores and their distances in 32 bits; exponentials round them."""
    matmul, *others = chain
    spec = product_spec(matmul)
    annotation_of(matmul).output_qspec = spec
    scale = 1.0
    maximum: Any = distance.args[1]
    for node in (*others, maximum, distance):
        annotation = annotation_of(node)
        # A view reads its sizes too.
        for value in annotation.input_qspec_map:
            annotation.input_qspec_map[value] = spec
        annotation.output_qspec = spec
        annotation.allow_implicit_sharing = False
        if node.target is _PRODUCT:
            # A number that is its own step has code 1 or -1.
            number = abs(float(stored_value(node.args[1]).detach()))
            annotation.input_qspec_map[node.args[1]] = number_spec(number)
            scale *= number
            spec = product_spec(matmul, 1 / scale)
            annotation.output_qspec = spec
        elif node.target is _MASK:
            bound = replace(spec, quant_min=-_MOST, quant_max=_MOST)
            annotation.input_qspec_map[node.args[1]] = bound
