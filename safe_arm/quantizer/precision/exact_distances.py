"""The differences of which a distance is computed stay in 32 bits until their squares or magnitudes are summed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import DerivedQuantizationSpec

from safe_arm._compat.annotations import int8_spec, spec_at, specs_read
from safe_arm._compat.release_1_4 import LARGEST_RESCALED
from safe_arm.quantizer.graphs.graph_edits import (
    is_stored,
    stored_tensor,
    tensor_of,
)
from safe_arm.quantizer.precision.added_products import is_observed
from safe_arm.quantizer.precision.exact_products import (
    CODES_APART,
    give_one_spec,
    is_annotated,
    is_centred,
    is_square,
    is_summed,
    step_of,
    wide_spec,
)

_ADDITIONS = (torch.ops.aten.add.Tensor, torch.ops.aten.sub.Tensor)
_OF_MEANS = (torch.ops.aten.mul.Tensor, torch.ops.aten.add.Tensor)
_MAGNITUDE = torch.ops.aten.abs.default
#: Steps of a difference in one of its coarser term. With fewer, the other term is rounded by more than it was.
_MOST_STEPS, _FEWEST_STEPS = 16, 4


def keep_distances_exact(
    model: GraphModule, between_rows: bool = True, from_constants: bool = True
) -> dict[Node, int]:
    """Keep a sum or a difference in 32 bits of which only squares or only magnitudes are read, and those summed.

    Its terms are two int8 values, or one and a constant. Stock rounds it to int8: half a code of a distance is due to
    that, more than to rounding the distance.

    Args:
        model: an annotated float graph; its annotations are changed.
        between_rows: also where there is more than one distance. By Vela's estimate they cost an Ethos-U55 up to 40 %
            more cycles; a loss, which is one number, is a small part of its net.
        from_constants: also from a constant. By Vela's estimate they cost an Ethos-U85 up to 18 % more cycles; all
            others take it less time.

    Returns:
        dict[Node, int]: what is kept, with its largest magnitude.
    """
    largest = {}
    for node in model.graph.nodes:
        if node.target not in _ADDITIONS or node.kwargs or not is_annotated(node):
            continue
        if is_centred(node):
            continue
        values = []
        constant = 0.0
        for term in node.all_input_nodes:
            stored = stored_tensor(term)
            if stored is None:
                values.append(term)
            else:
                constant = float(stored.detach().abs().max())
        if len(values) < len(node.all_input_nodes) and not from_constants:
            continue
        if not between_rows and not _is_one_number(node):
            continue
        steps = _most_steps(node)
        if steps and values and all(_is_int8(value, node) for value in values):
            kept = [node, *filter(_is_magnitude, node.users)]
            largest.update(dict.fromkeys(kept, _size(steps)))
            _keep(node, steps, values, constant)
    return largest


def _is_one_number(difference: Node) -> bool:
    """Tell whether the squares of a difference are summed to one number."""
    for square in difference.users:
        for total in square.users:
            value = tensor_of(total)
            if value is None or value.numel() != 1:
                return False
    return True


def _is_int8(term: Node, difference: Node) -> bool:
    """Tell whether a term is an int8 tensor, and not one of 16 bits that is read in 8 here."""
    return is_observed(term, difference) and int8_spec(spec_at(term)) is not None


def _most_steps(difference: Node) -> int:
    """Return the number of steps that the sums of its squares can take; 0 if it is read by anything else.

    A norm has the scale of its mean of squares from that of what is squared (``norm_roots``).
    """
    readers = difference.users
    if readers and all(map(_is_magnitude, readers)):
        return _MOST_STEPS if _are_summed(difference) else 0
    if not readers or not all(map(is_square, readers)):
        return 0
    if any(map(_is_of_norm, difference.users)):
        return 0
    for steps in range(_MOST_STEPS, _FEWEST_STEPS - 1, -1):
        square = _size(steps) ** 2
        if all(
            is_summed(reader, square, LARGEST_RESCALED) for reader in difference.users
        ):
            return steps
    return 0


def _is_magnitude(reader: Node) -> bool:
    return reader.target is _MAGNITUDE and is_annotated(reader)


def _are_summed(difference: Node) -> bool:
    """Tell whether the magnitudes of a difference are summed, and fit 32 bits."""
    size = _size(_MOST_STEPS)
    return all(is_summed(reader, size, LARGEST_RESCALED) for reader in difference.users)


def _is_of_norm(square: Node) -> bool:
    """Tell whether the sum of a square is multiplied or raised by a constant in 32 bits already."""
    for total in square.users:
        for reader in total.users:
            if reader.target not in _OF_MEANS or not is_stored(reader.args[1]):
                continue
            if isinstance(spec_at((total, reader)), DerivedQuantizationSpec):
                return True
    return False


def _size(steps: int) -> int:
    """Return the largest magnitude of a difference in steps, each term of which is rounded."""
    return steps * CODES_APART + 1


def _keep(
    difference: Node, steps: int, values: Sequence[Node], constant: float
) -> None:
    of_terms = partial(_of_terms, steps=steps, least=constant / CODES_APART)
    spec = wide_spec(values, of_terms)
    give_one_spec(difference, spec)
    for reader in difference.users:
        if not _is_magnitude(reader):
            specs_read(reader)[difference] = spec
            continue
        give_one_spec(reader, spec)
        for total in reader.users:
            specs_read(total)[reader] = spec


def _of_terms(observers: Sequence[Any], steps: int, least: float) -> Tensor:
    """Return the larger scale of two terms over a number of steps; of a constant it is the least."""
    return torch.stack(list(map(step_of, observers))).amax(0).clamp(min=least) / steps
