"""Recurrent cells keep 16 bits between their layers and their gates."""

from __future__ import annotations

from collections.abc import Container
from math import prod

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.observer import MinMaxObserver
from torchao.quantization.pt2e.quantizer import (
    QuantizationSpec,
    SharedQuantizationSpec,
)

from safe_arm._compat.annotations import (
    ScaleAndZero,
    annotation_of,
    in_int16,
    int8_spec,
    is_calibrated,
    plain_spec,
    shares_place,
    spec_at,
    specs_read,
)
from safe_arm.core.island import op_name
from safe_arm.quantizer.graphs.factory_operators import is_factory
from safe_arm.quantizer.graphs.graph_edits import (
    MOVES,
    moved_from,
    readers_of,
    static_sizes,
)

_ATEN = torch.ops.aten
_LAYER = _ATEN.linear.default
_SUM = _ATEN.add.Tensor
_GATES = (_ATEN.sigmoid.default, _ATEN.tanh.default)
_PRODUCT = _ATEN.mul.Tensor
_SUMS = (_SUM, _ATEN.sub.Tensor)
_ARITHMETIC = (*_SUMS, _PRODUCT, *_GATES)


class SpaciousObserver(MinMaxObserver):
    """Leaves room for twice the values that were seen: one of the 16 bits."""

    def calculate_qparams(self) -> ScaleAndZero:
        """Return scale and zero point of a range twice as wide as the one that was seen."""
        return self._calculate_qparams(2 * self.min_val, 2 * self.max_val)


def refine_gates(model: GraphModule) -> None:
    """Give 16 bits to what recurrent cells compute between their layers; the layers read and multiply 8 bits.

    A cell rounds the products of either layer, their sum, the gates, the state and products of these, in each step, and
    each step reads the state of the last. With 8 bits an LSTM or a GRU has 5 dB less than its borders allow. Gates are
    still read from tables of 8 bits, each in a domain of its own, so that the delegate is exact.

    Args:
        model: an annotated float graph; its annotations are changed in place. A factory that a layer and arithmetic
            read is written once for each.
    """
    cells = _cells(model)
    for node in cells:
        _widen_inputs(node)
    for node in cells:
        _widen_output(node, cells)


def _cells(model: GraphModule) -> dict[Node, int]:
    """Return the nodes of cells, each with the most elements that a value computed of it may have.

    A cell begins with the sum of two layers, of which gates are computed. Further arithmetic with its values belongs
    to it, but not where they are broadcast.
    """
    cells: dict[Node, int] = {}
    for node in model.graph.nodes:
        if _is_gated_sum(node):
            for term in node.args[:2]:
                cells[moved_from(term)] = _size(node)
    for node in model.graph.nodes:
        most = -1
        is_read = False
        for each in node.all_input_nodes:
            if each in cells:
                is_read = True
                most = max(most, cells[each])
        if is_read and _belongs(node, most):
            cells[node] = most
    return cells


def _belongs(node: Node, most: int) -> bool:
    """Tell whether what reads a value of a cell belongs to it, with so many elements at most."""
    if not _is_of_int8(node):
        return False
    if node.kwargs:
        return False
    if op_name(node) in MOVES:
        return _is_read_by(node, _ARITHMETIC)
    if node.target not in _ARITHMETIC:
        return False
    return _size(node) <= most


def _is_gated_sum(node: Node) -> bool:
    """Tell whether a node adds the results of two layers, of which functions of gates are computed."""
    if node.target is not _SUM or node.kwargs:
        return False
    if not _is_of_int8(node):
        return False
    layers = set()
    for term in node.args[:2]:
        if not isinstance(term, Node):
            return False
        layer = moved_from(term)
        if not _is_layer(layer):
            return False
        layers.add(layer)
    if len(layers) == 1:
        return False
    return _is_read_by(node, _GATES)


def _is_layer(node: Node) -> bool:
    """Tell whether a node is a layer of 8 bits that only arithmetic reads."""
    if node.target is not _LAYER:
        return False
    if not _is_of_int8(node):
        return False
    return _is_read_by(node, _ARITHMETIC)


def _is_read_by(node: Node, targets: Container[object]) -> bool:
    """Tell whether all that reads a value, or parts of it, is one of some operators."""
    return all(reader.target in targets for reader in readers_of(node, MOVES))


def _size(node: Node) -> int:
    """Return the number of elements of a value; -1 if it is dynamic."""
    sizes = static_sizes(node)
    if sizes is None:
        return -1
    return prod(sizes)


def _is_of_int8(node: Node) -> bool:
    """Tell whether one of stock's observers, and not one for training, gives a value its 8 bits."""
    spec = int8_spec(spec_at(node))
    return spec is not None and is_calibrated(spec)


def _widen_inputs(node: Node) -> None:
    """Read values in 16 bits, but gates that are multiplied in their own 8; what is added has one domain."""
    if node.target is _LAYER or node.target in _GATES:
        return
    _copy_factories(node)
    specs = specs_read(node)
    first = node.args[0]
    for value, spec in specs.items():
        narrow = plain_spec(spec)
        if narrow is None or (value.target in _GATES and node.target is _PRODUCT):
            continue
        if node.target in _SUMS and value is not first and first in specs:
            specs[value] = SharedQuantizationSpec((first, node))
        else:
            specs[value] = in_int16(narrow, SpaciousObserver)


def _copy_factories(node: Node) -> None:
    """Read zeros that a layer reads too from a factory of their own: stock stores them with one width."""
    annotation = annotation_of(node)
    renamed = {}
    for value, spec in annotation.input_qspec_map.items():
        read = value
        if len(value.users) > 1 and is_factory(value):
            with node.graph.inserting_before(node):
                read = node.graph.node_copy(value)
            node.replace_input_with(value, read)
        renamed[read] = spec
    annotation.input_qspec_map = renamed


def _widen_output(node: Node, cells: dict[Node, int]) -> None:
    """Give a value 16 bits if the cell goes on with it; what else reads it keeps its own 8 bits.

    A sum has the domain of what is added, in which it is not rounded.
    """
    annotation = annotation_of(node)
    if op_name(node) in MOVES:
        annotation.output_qspec = SharedQuantizationSpec((node.args[0], node))
        return
    narrow = plain_spec(annotation.output_qspec)
    if narrow is None or node.target in _GATES:
        return
    if not any(
        reader in cells and reader.target is not _LAYER for reader in node.users
    ):
        return
    annotation.output_qspec = in_int16(narrow, SpaciousObserver)
    if node.target in _SUMS and node.args[0] in annotation.input_qspec_map:
        annotation.output_qspec = SharedQuantizationSpec((node.args[0], node))
    _read_narrow(node, narrow)


def _read_narrow(node: Node, narrow: QuantizationSpec) -> None:
    """Let all that read the 8 bits of a value that has 16 ask for them by themselves.

    torchao joins equal reads. If one referred to another, it could join that to the one that refers to it (T20).
    """
    places = [node, *((node, reader) for reader in node.users)]
    for reader in node.users:
        specs = getattr(annotation_of(reader), "input_qspec_map", {})
        if any(shares_place(specs.get(node), place) for place in places):
            specs[node] = narrow
