"""Squares, cubes and fourth powers of 16 bits are products, which the device computes exactly."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import QuantizationSpec

from safe_arm._compat.annotations import Q_ANNOTATION_KEY, annotation_of, spec_at
from safe_arm.quantizer.graphs.graph_edits import Writer, calls
from safe_arm.quantizer.precision.int16_steps import is_of_int16

_ATEN = torch.ops.aten
_POWER = _ATEN.pow.Tensor_Scalar
_PRODUCT = _ATEN.mul.Tensor
_EXPONENTS = (2, 3, 4)


def multiply_int16_powers(model: GraphModule) -> None:
    """Write small powers of 16 bits as products.

    Stock reads them from a table of 513 entries, with straight lines between, each entry rounded: the delegate of a
    deviation, ``sqrt(mean(x ** 2) - mean(x) ** 2)``, is 20 codes off, and that of the products 3.

    Args:
        model: an annotated float graph; changed in place.
    """
    for power in calls(model, _POWER):
        spec = spec_at(power)
        if power.args[1] not in _EXPONENTS or not is_of_int16(power):
            continue
        if isinstance(spec, QuantizationSpec):
            _multiply(power, spec)
    model.recompile()


def _multiply(power: Node, spec: QuantizationSpec) -> None:
    value, exponent = power.args
    power.target = _PRODUCT
    if exponent == 2:
        power.args = (value, value)
        return
    annotation = annotation_of(power)
    square = Writer(power)(_PRODUCT, value, value)
    specs = dict(annotation.input_qspec_map)
    square.meta[Q_ANNOTATION_KEY] = replace(annotation, input_qspec_map=specs)
    power.args = (square, value if exponent == 3 else square)
    annotation.input_qspec_map[square] = spec
    if exponent == 4:
        del annotation.input_qspec_map[value]
