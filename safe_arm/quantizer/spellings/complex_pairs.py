"""Complex numbers are pairs of a real and an imaginary part, as no delegate takes them otherwise.

Rotary positions are often written as ``view_as_real(view_as_complex(x) * positions)``, and so are masks of spectra.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from safe_arm.core.island import graph_modules, op_name
from safe_arm.core.operators import ElementOrigin, operators
from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import Writer, replace_node, tensor_of

_ATEN = torch.ops.aten
#: The nodes of a real and of an imaginary part.
_Pair: TypeAlias = tuple[Node, Node]
_MOVES = operators(ElementOrigin.VIEW, ElementOrigin.PART)
_SAME = (_ATEN.resolve_conj.default, _ATEN.clone.default, _ATEN.contiguous.default)
_CONJUGATES = (_ATEN._conj.default, _ATEN.conj.default, _ATEN.conj_physical.default)
_SUMS = (_ATEN.add.Tensor, _ATEN.sub.Tensor)


def write_complex_pairs(model: GraphModule) -> None:
    """Write what is computed of complex numbers with their parts, from where they begin to where they are real again.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place. A number
            that comes from another operator, such as a Fourier transform, stays as it is, and all that is computed of
            it.
    """
    for module in graph_modules(model):
        pairs = _Pairs(ConstantValues(module))
        nodes = list(module.graph.nodes)
        is_changed = False
        for node in nodes:
            rule = _ENDS.get(node.target)
            value = tensor_of(node.args[0]) if rule and node.args else None
            if rule is None or value is None or value.dtype != torch.complex64:
                continue
            pair = pairs.of(node.args[0])
            if pair is not None:
                replace_node(node, rule(Writer(node), *pair))
                is_changed = True
        if is_changed:
            module.graph.eliminate_dead_code()
        else:
            _erase_all_but(module.graph, set(nodes))
        module.recompile()


def _erase_all_but(graph: Graph, nodes: set[Node]) -> None:
    """Erase what was written in vain, of numbers that another operator reads together with others."""
    for node in reversed(graph.nodes):
        if node not in nodes:
            graph.erase_node(node)


class _Pairs:
    """Writes the parts of complex values, those of each once.

    Args:
        values: the constants of the graph.
    """

    def __init__(self, values: ConstantValues) -> None:
        self.values = values
        self.found: dict[Node, _Pair | None] = {}

    def of(self, node: Any) -> _Pair | None:
        """Return the parts of a complex value, which are written before it; None if it stays as it is."""
        if node not in self.found:
            self.found[node] = self._written(node)
        return self.found[node]

    def _written(self, node: Node) -> _Pair | None:
        write = Writer(node)
        constant = self.values.of(node)
        if constant is not None:
            return _constants(write, constant)
        if op_name(node).removesuffix("_copy") in _MOVES and not node.kwargs:
            return self._moved(write, node)
        if node.kwargs:
            return None
        begin = _BEGINNINGS.get(node.target)
        if begin is not None:
            return begin(write, *node.args)
        if node.target in _SAME:
            return self.of(node.args[0])
        if node.target in _CONJUGATES:
            return self._conjugate(write, node)
        if node.target == _ATEN.mul.Tensor:
            return self._product(write, *node.args)
        if node.target in _SUMS:
            return self._sum(write, node)
        return None

    def _moved(self, write: Writer, node: Node) -> _Pair | None:
        """Move both parts as a view of the number is."""
        pair = self.of(node.args[0]) if node.all_input_nodes == [node.args[0]] else None
        if pair is None:
            return None
        target: Any = node.target
        real, imaginary = pair
        rest = node.args[1:]
        return write(target, real, *rest), write(target, imaginary, *rest)

    def _conjugate(self, write: Writer, node: Node) -> _Pair | None:
        pair = self.of(node.args[0])
        if pair is None:
            return None
        real, imaginary = pair
        return real, write(_ATEN.neg.default, imaginary)

    def _product(self, write: Writer, left: Any, right: Any) -> _Pair | None:
        """Multiply two complex numbers, or the parts of one by a real number."""
        if not _is_complex(left):
            left, right = right, left
        pair = self.of(left)
        if pair is None:
            return None
        real, imaginary = pair
        if not _is_complex(right):
            if isinstance(right, complex):
                return None
            return _scaled(write, real, right), _scaled(write, imaginary, right)
        other = self.of(right)
        if other is None:
            return None
        written: list[Node] = write.compute(_multiplied, (real, imaginary, *other))
        return written[0], written[1]

    def _sum(self, write: Writer, node: Node) -> _Pair | None:
        left, right = node.args[:2]
        if not _is_complex(left) or not _is_complex(right):
            return None
        one, other = self.of(left), self.of(right)
        if one is None or other is None:
            return None
        target: Any = node.target
        return write(target, one[0], other[0]), write(target, one[1], other[1])


def _is_complex(value: object) -> bool:
    tensor = tensor_of(value)
    return tensor is not None and tensor.is_complex()


def _scaled(write: Writer, part: Node, factor: Node | float) -> Node:
    return write(_ATEN.mul.Tensor, part, factor)


def _multiplied(
    real: Tensor, imaginary: Tensor, other_real: Tensor, other_imaginary: Tensor
) -> list[Tensor]:
    return [
        real * other_real - imaginary * other_imaginary,
        real * other_imaginary + imaginary * other_real,
    ]


def _constants(write: Writer, value: Tensor) -> _Pair | None:
    """Store the parts of a constant."""
    if value.dtype != torch.complex64:
        return None
    value = value.resolve_conj()
    real = write.constant(value.real.contiguous(), "real_of")
    return real, write.constant(value.imag.contiguous(), "imaginary_of")


def _of_last_dimension(write: Writer, x: Node) -> _Pair:
    """Pick the parts that stand beside each other."""
    real = write(_ATEN.select.int, x, -1, 0)
    return real, write(_ATEN.select.int, x, -1, 1)


def _of_parts(write: Writer, real: Node, imaginary: Node) -> _Pair:
    return real, imaginary


def _of_angle(write: Writer, length: Node, angle: Node) -> _Pair:
    """Compute the parts of a number of a length and an angle."""
    cosine = write(_ATEN.cos.default, angle)
    sine = write(_ATEN.sin.default, angle)
    real = write(_ATEN.mul.Tensor, length, cosine)
    return real, write(_ATEN.mul.Tensor, length, sine)


#: Operators that make complex numbers of real ones.
_BEGINNINGS: dict[Any, Callable[..., _Pair]] = {
    _ATEN.view_as_complex.default: _of_last_dimension,
    _ATEN.complex.default: _of_parts,
    _ATEN.polar.default: _of_angle,
}


def _beside(write: Writer, real: Node, imaginary: Node) -> Node:
    return write(_ATEN.stack.default, [real, imaginary], -1)


def _length(write: Writer, real: Node, imaginary: Node) -> Node:
    squares: Node = write.compute(_root_of_squares, (real, imaginary))
    return squares


def _root_of_squares(real: Tensor, imaginary: Tensor) -> Tensor:
    return (real * real + imaginary * imaginary).sqrt()


#: Operators that make real numbers of complex ones.
_ENDS: dict[Any, Callable[..., Node]] = {
    _ATEN.view_as_real.default: _beside,
    _ATEN.real.default: lambda write, real, imaginary: real,
    _ATEN.imag.default: lambda write, real, imaginary: imaginary,
    _ATEN.abs.default: _length,
}
