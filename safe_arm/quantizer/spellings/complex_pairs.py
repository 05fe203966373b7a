"""Complex numbers are pairs of a real and an imaginary part, as no delegate takes them otherwise.

Rotary positions are often written as ``view_as_real(view_as_complex(x) * positions)``, and so are masks of spectra.
Fourier transforms are written with the parts, too: see ``fourier_transforms``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.nn import Parameter

from safe_arm.core.island import arguments_by_name, graph_modules, op_name
from safe_arm.core.operators import ElementOrigin, operators
from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    has_dtype,
    is_float32,
    replace_node,
    squared,
    stored_tensor,
)
from safe_arm.quantizer.graphs.operator_schemas import is_mutable
from safe_arm.quantizer.spellings.complex_products import (
    Product,
    is_complex,
    product_of,
)
from safe_arm.quantizer.spellings.fourier_transforms import (
    INVERSES,
    TRANSFORMS,
    Pair,
    Parts,
    write_transform,
)
from safe_arm.quantizer.spellings.short_time_transforms import (
    write_short_time_inverse,
    write_short_time_transform,
)

_ATEN = torch.ops.aten
_MOVES = operators(ElementOrigin.VIEW, ElementOrigin.PART)
_SAME = (
    _ATEN.resolve_conj.default,
    _ATEN.clone.default,
    _ATEN.contiguous.default,
)
_CONJUGATES = (
    _ATEN._conj.default,
    _ATEN.conj.default,
    _ATEN.conj_physical.default,
)
_SUMS = (_ATEN.add.Tensor, _ATEN.sub.Tensor)
_PADS = (_ATEN.pad.default, _ATEN.constant_pad_nd.default)
#: Operators that compute each part of the result of the same part of the operands.
_LINEAR = (
    *_SUMS,
    *_PADS,
    _ATEN.neg.default,
    _ATEN.cat.default,
    _ATEN.stack.default,
    _ATEN.slice_scatter.default,
    _ATEN.select_scatter.default,
    _ATEN.roll.default,
    _ATEN.flip.default,
    _ATEN.sum.dim_IntList,
    _ATEN.mean.dim,
    _ATEN.fft_fftshift.default,
    _ATEN.fft_ifftshift.default,
)
_ISTFT = _ATEN.istft.default


def write_complex_pairs(model: GraphModule) -> None:
    """Write what is computed of complex numbers with their parts, from where they begin to where they are real again.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place. A number
            that comes from another operator, such as an eigenvalue, stays as it is, and all that is computed of it.
    """
    for module in graph_modules(model):
        nodes = list(module.graph.nodes)
        if any(map(_writes_in_place, nodes)):
            continue
        pairs = _Pairs(ConstantValues(module))
        is_changed = False
        for node in nodes:
            written = pairs.end(node)
            if written is not None:
                replace_node(node, written)
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
        self.found: dict[Node, Pair | None] = {}

    def of(self, node: Any) -> Pair | None:
        """Return the parts of a complex value, which are written before it; None if it stays as it is."""
        if node not in self.found:
            self.found[node] = self._written(node)
        return self.found[node]

    def end(self, node: Node) -> Node | None:
        """Write an operator that makes real numbers of complex ones; return None if it stays as it is."""
        rule = _ENDS.get(node.target)
        if rule is None and node.target not in (_ATEN.abs.default, _ISTFT, *INVERSES):
            return None
        write = Writer(node)
        if node.target in INVERSES and is_float32(node.args[0]):
            return _only_real(write_transform(write, node, (node.args[0], None)))
        if not node.args or not has_dtype(node.args[0], torch.complex64):
            return None
        pair = self.of(node.args[0])
        if pair is None:
            return None
        if node.target is _ATEN.abs.default:
            return _length(write, node, *pair)
        if rule is not None:
            return rule(write, *pair)
        if node.target is _ISTFT:
            return write_short_time_inverse(write, node, pair, self.values)
        return _only_real(write_transform(write, node, pair))

    def _written(self, node: Node) -> Pair | None:
        write = Writer(node)
        constant = self.values.of(node)
        stored = stored_tensor(node)
        if isinstance(stored, Parameter):
            constant = stored
        if constant is not None:
            return _constants(write, constant)
        if node.target in TRANSFORMS:
            return self._transformed(write, node)
        if node.target is _ATEN.stft.default:
            return write_short_time_transform(write, node, self.values)
        if op_name(node).removesuffix("_copy") in _MOVES or node.target in _LINEAR:
            return self._in_parts(write, node)
        if node.kwargs:
            return None
        begin = _BEGINNINGS.get(node.target)
        if begin is not None:
            return begin(write, *node.args)
        if node.target in _SAME:
            return self.of(node.args[0])
        if node.target in _CONJUGATES:
            return self._conjugate(write, node)
        if node.target is _ATEN.div.Tensor:
            return self._quotient(write, node)
        product = product_of(node)
        return None if product is None else self._product(write, product)

    def _in_parts(self, write: Writer, node: Node) -> Pair | None:
        """Apply an operator to the real parts of its operands, and to the imaginary ones."""
        are_complex = all(map(is_complex, node.args[:2]))
        if node.target in _SUMS and not are_complex:
            return self._shifted(write, node)
        if node.target in _PADS and arguments_by_name(node)["value"]:
            return None
        pairs = {}
        for source in node.all_input_nodes:
            pair = self.of(source) if is_complex(source) else None
            if pair is None:
                return None
            pairs[source] = pair
        target: Any = node.target
        written = []
        for part in range(2):
            parts = {source: pair[part] for source, pair in pairs.items()}
            args, kwargs = map_arg((node.args, node.kwargs), parts.__getitem__)
            written.append(write(target, *args, **kwargs))
        return written[0], written[1]

    def _shifted(self, write: Writer, node: Node) -> Pair | None:
        """Add a number to the real part."""
        left, right = node.args[:2]
        pair = self.of(left) if is_complex(left) else None
        if pair is None or not isinstance(right, (int, float)):
            return None
        target: Any = node.target
        real, imaginary = pair
        return write(target, real, right, **node.kwargs), imaginary

    def _transformed(self, write: Writer, node: Node) -> Pair | None:
        """Write a Fourier transform of complex numbers, or of real ones."""
        source: Any = node.args[0]
        if is_float32(source):
            return _both(write_transform(write, node, (source, None)))
        pair = self.of(source) if is_complex(source) else None
        return pair and _both(write_transform(write, node, pair))

    def _conjugate(self, write: Writer, node: Node) -> Pair | None:
        pair = self.of(node.args[0])
        if pair is None:
            return None
        real, imaginary = pair
        return real, write(_ATEN.neg.default, imaginary)

    def _product(self, write: Writer, product: Product) -> Pair | None:
        """Multiply two complex numbers, or one by a real number."""
        left = self._operand(product.left)
        right = self._operand(product.right)
        if left is None or right is None:
            return None
        written = write.compute(product.parts, (left, right))
        return written[0], written[1]

    def _operand(self, value: object) -> tuple[Any, Any] | None:
        """Return the parts of a factor, of a real one its value and None; None if it stays as it is."""
        if is_complex(value):
            return self.of(value)
        if isinstance(value, complex):
            return None
        return value, None

    def _quotient(self, write: Writer, node: Node) -> Pair | None:
        """Divide both parts of a number by a real one."""
        dividend, divisor = node.args
        if is_complex(divisor) or isinstance(divisor, complex):
            return None
        pair = self.of(dividend)
        if pair is None:
            return None
        target = _ATEN.div.Tensor
        real, imaginary = pair
        quotient = write(target, real, divisor)
        return quotient, write(target, imaginary, divisor)


def _both(parts: Parts | None) -> Pair | None:
    """Return the parts of a complex value; None if it was not written."""
    if parts is None or parts[1] is None:
        return None
    return parts[0], parts[1]


def _only_real(parts: Parts | None) -> Node | None:
    """Return the real part; None if it was not written."""
    return None if parts is None else parts[0]


def _writes_in_place(node: Node) -> bool:
    """Tell whether an operator writes into a complex number, which its parts would not show."""
    return is_complex(node) and is_mutable(node)


def _constants(write: Writer, value: Tensor) -> Pair | None:
    """Store the parts of a constant, or of a parameter."""
    if value.dtype != torch.complex64:
        return None
    constant = value.detach().resolve_conj()
    real, imaginary = constant.real.contiguous(), constant.imag.contiguous()
    if isinstance(value, Parameter):
        real, imaginary = Parameter(real), Parameter(imaginary)
    return write.constant(real, "real_of"), write.constant(imaginary, "imaginary_of")


def _of_last_dimension(write: Writer, x: Node) -> Pair:
    """Pick the parts that stand beside each other."""
    real = write(_ATEN.select.int, x, -1, 0)
    return real, write(_ATEN.select.int, x, -1, 1)


def _of_parts(write: Writer, real: Node, imaginary: Node) -> Pair:
    return real, imaginary


def _of_angle(write: Writer, length: Node, angle: Node) -> Pair:
    """Compute the parts of a number of a length and an angle."""
    cosine = write(_ATEN.cos.default, angle)
    sine = write(_ATEN.sin.default, angle)
    real = write(_ATEN.mul.Tensor, length, cosine)
    return real, write(_ATEN.mul.Tensor, length, sine)


#: Operators that make complex numbers of real ones.
_BEGINNINGS: dict[Any, Callable[..., Pair]] = {
    _ATEN.view_as_complex.default: _of_last_dimension,
    _ATEN.complex.default: _of_parts,
    _ATEN.polar.default: _of_angle,
}


def _beside(write: Writer, real: Node, imaginary: Node) -> Node:
    return write(_ATEN.stack.default, [real, imaginary], -1)


def _length(write: Writer, node: Node, real: Node, imaginary: Node) -> Node:
    """Return the length of a number; what squares it reads the sum of squares instead."""
    squares: Node = write.compute(_sum_of_squares, (real, imaginary))
    for reader in list(node.users):
        is_power = reader.target is _ATEN.pow.Tensor_Scalar and reader.args[1] == 2
        if is_power or squared(reader) is node or reader.target is _ATEN.square.default:
            replace_node(reader, squares)
    return write(_ATEN.sqrt.default, squares)


def _sum_of_squares(real: Tensor, imaginary: Tensor) -> Tensor:
    return real * real + imaginary * imaginary


#: Operators that make real numbers of complex ones.
_ENDS: dict[Any, Callable[..., Node]] = {
    _ATEN.view_as_real.default: _beside,
    _ATEN.real.default: lambda write, real, imaginary: real,
    _ATEN.imag.default: lambda write, real, imaginary: imaginary,
    _ATEN.angle.default: lambda write, real, imaginary: write(
        _ATEN.atan2.default, imaginary, real
    ),
}
