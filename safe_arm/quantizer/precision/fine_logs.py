"""The logarithm of a sum of squares is computed in two steps, of a sum in 32 bits.

The power of a sound spans 60 dB and more, of which 8 bits in steps of one size keep 24: all quiet values have one code,
and the logarithm, which is taken for their sake, makes most of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    QuantizationSpec,
)

from safe_arm.core.attributes import stored_value
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    calls,
    is_call,
    operands_of,
    rewrite,
)
from safe_arm.quantizer.precision.fine_roots import annotate_unit
from safe_arm.quantizer.precision.sums_of_squares import (
    keep_argument,
    number_for,
    offset_of_square,
    replace_in_shape,
    write_unit,
)
from safe_arm.quantizer.precision.two_steps import (
    RoundedOnce,
    copy_inputs,
    fixed_spec,
    give_spec,
    keep_fine,
)

_ATEN = torch.ops.aten
#: Logarithms, each with that of e.
_LOGS = {_ATEN.log.default: 1.0, _ATEN.log10.default: math.log10(math.e)}
_ROOT = _ATEN.rsqrt.default
_PRODUCT = _ATEN.mul.Tensor
_DIFFERENCE = _ATEN.sub.Tensor
#: Bounds of the natural logarithm of what the rough root leaves: between a half and 2, but for the smallest values.
_LOWEST, _HIGHEST = -2.1, 0.7
#: The largest number that is added to one square whose logarithm is computed in two steps.
_LARGEST_OFFSET = 0.05


@dataclass(frozen=True)
class _FineLog(RoundedOnce):
    """A logarithm in two steps, ``log(y * r * r) - 2 * log(r)``.

    Attributes:
        of_root: the logarithm of the inverse root, r.
        twice: two times that.
    """

    of_root: Node
    twice: Node

    def undo(self) -> None:
        """Compute the logarithm in one step."""
        read = self.of_root.args[0]
        self.fine.target = self.of_root.target
        if read is self.rough:
            self.fine.args = (self.argument,)
            copy_inputs(self.rough, self.fine)
        else:
            self.fine.args = (read,)
            copy_inputs(self.of_root, self.fine)
            _multiply_argument(read, self.argument)
        leftover = (self.twice, self.of_root, self.correction, self.unit)
        for node in (*leftover, self.between, self.rough):
            node.graph.erase_node(node)


def _multiply_argument(product: Any, argument: Node) -> None:
    """Multiply the sum by its factor, instead of the inverse root by the factor's."""
    root_of_factor = product.args[1]
    number = stored_value(root_of_factor)
    number.copy_(number**-2)
    product.args = (argument, root_of_factor)


def refine_logs(model: GraphModule) -> None:
    """Write ``log(f * y)`` as ``log(y * r * r) - 2 * log(r / sqrt(f))`` with ``r = rsqrt(y)``.

    y is a sum of squares, and f a number, such as a mean's.

    Args:
        model: a float graph that stock's passes have transformed; changed in place.
    """
    rewrite(model, _write, *_LOGS)


def _write(log: Node) -> bool:
    """Write one logarithm, and tell whether it is that of a sum of squares."""
    write = Writer(log)
    argument = log.all_input_nodes[0]
    if _has_large_offset(argument):
        return False
    found = write_unit(write, argument)
    if found is None:
        return False
    function: Any = log.target
    correction = write(function, found.unit)
    root = found.rough
    if found.factor != 1:
        number = number_for(write, root, found.factor**-0.5, "root_of_factor")
        root = write(_PRODUCT, root, number)
    of_root = write(function, root)
    twice = write(_PRODUCT, of_root, number_for(write, of_root, 2.0, "two"))
    replace_in_shape(write, log, write(_DIFFERENCE, correction, twice))
    return True


def _has_large_offset(argument: Node) -> bool:
    """Tell whether so much is added to one square that 8 bits hold its logarithm: ``log(x * x + 1)``."""
    offset = offset_of_square(argument)
    return offset is not None and offset > _LARGEST_OFFSET


def keep_logs_fine(model: GraphModule) -> None:
    """Quantise logarithms in two steps so that the sum has 32 bits; undo those that are not of 8 bits.

    Args:
        model: an annotated float graph; changed in place.
    """
    keep_fine(model, _fine_logs(model), _annotate)


def _fine_logs(model: GraphModule) -> Iterator[_FineLog]:
    for fine in calls(model, _DIFFERENCE):
        correction, twice = fine.args[:2]
        of_root, _ = operands_of(twice, _PRODUCT)
        if not _is_log(correction) or not is_call(of_root, correction.target):
            continue
        unit: Any = correction.args[0]
        root: Any = of_root.args[0]
        scaled, rough = operands_of(unit, _PRODUCT)
        argument, _ = operands_of(scaled, _PRODUCT)
        if is_call(root, _PRODUCT):
            root = root.args[0]
        of_argument, _ = operands_of(rough, _ROOT)
        if root is not rough or argument is None or of_argument is not argument:
            continue
        steps = (argument, rough, scaled, unit, correction, fine)
        yield _FineLog(*steps, of_root, twice)


def _is_log(node: object) -> TypeGuard[Node]:
    return isinstance(node, Node) and node.target in _LOGS


def _annotate(found: _FineLog, spec: QuantizationSpec) -> None:
    annotate_unit(found, spec)
    keep_argument(found.argument)
    function: Any = found.correction.target
    of_e = _LOGS[function]
    bounded = fixed_spec(spec, _HIGHEST * of_e, _LOWEST * of_e)
    give_spec(found.correction, bounded)
