"""The root of a sum of squares of 16 bits is computed in two steps, of a sum in 32."""

from __future__ import annotations

from torch.fx import GraphModule
from torchao.quantization.pt2e.quantizer import QuantizationSpec

from safe_arm._compat.annotations import annotation_of, derived_spec
from safe_arm.quantizer.graphs.graph_edits import stored_number
from safe_arm.quantizer.precision.fine_lengths import Length, lengths
from safe_arm.quantizer.precision.int16_roots import (
    LARGEST_CORRECTION,
    annotate_rough_root,
    of_root,
)
from safe_arm.quantizer.precision.int16_steps import correct, int16_spec, up_to
from safe_arm.quantizer.precision.two_steps import give_spec


def keep_int16_lengths(model: GraphModule) -> None:
    """Quantise the roots of sums of squares of 16 bits in two steps.

    Args:
        model: an annotated float graph; changed in place.
    """
    for found in lengths(model):
        spec = int16_spec(found, found.scaled)
        if spec is not None:
            _annotate(found, spec)


def _annotate(found: Length, spec: QuantizationSpec) -> None:
    place = annotate_rough_root(found, spec)
    annotation = annotation_of(found.fine)
    annotation.input_qspec_map[found.between] = derived_spec(spec, [place], of_root)
    annotation.allow_implicit_sharing = False
    correct(found, spec, LARGEST_CORRECTION)
    if found.scaled is not found.correction:
        factor = stored_number(found.scaled.args[1])
        assert factor is not None
        give_spec(found.scaled, up_to(spec, LARGEST_CORRECTION * factor))
