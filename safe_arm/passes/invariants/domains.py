"""Infer the quantisation domain of each value of a lowered graph from the domains of its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from functools import cache
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import Argument

from safe_arm._compat.upstream import QuantArgs
from safe_arm.core.island import op_name
from safe_arm.core.operators import ElementOrigin, named, operators
from safe_arm.passes.invariants.watch import broken

#: A scale, one for all values or one for each channel, and a zero point.
Scale = float | tuple[float, ...]
Domain = tuple[Scale, int]
Domains = dict[Node, Domain | None]

#: Scales are products and quotients of float64s.
TOLERANCE = 1e-6


def domain_of(qparams: QuantArgs) -> Domain:
    """Return the domain of a value with those qparams."""
    scale = qparams.scale
    zero_point = qparams.zp
    if isinstance(scale, (list, tuple)):
        if isinstance(zero_point, (list, tuple)):
            zero_point = zero_point[0]
        return tuple(map(float, scale)), int(zero_point)
    return float(scale), int(zero_point)  # type: ignore[arg-type]


def input_qparams(node: Node) -> dict[int, QuantArgs]:
    """Return the qparams that the fold noted for a node's arguments, by index."""
    return node.meta.get("input_qparams") or {}


def output_qparams(node: Node) -> QuantArgs | None:
    """Return the qparams that the fold noted for a node's value, None for none."""
    qparams: dict[int, QuantArgs] = node.meta.get("output_qparams") or {}
    return next(iter(qparams.values()), None)


def same(a: Domain, b: Domain) -> bool:
    """Tell whether two domains agree, up to the rounding of their scales."""
    return a == b or (a[1] == b[1] and _close(a[0], b[0]))


def shown(domain: Domain) -> str:
    """Return a domain as reports write it."""
    scale, zero_point = domain
    scales = (scale,) if isinstance(scale, float) else scale[:4]
    text = ", ".join(f"{each:.6g}" for each in scales)
    if isinstance(scale, tuple):
        text = f"[{text}, ...]"
    return f"scale {text}, zero point {zero_point}"


def infer(graph: Graph, sources: dict[str, Domain]) -> Domains:
    """Work out the domain of every value, None where nothing is known.

    Args:
        graph: any stage of the pipeline after Q and DQ have been folded.
        sources: the known domains of placeholders, by name.

    Raises:
        InvariantError: an operator reads values in another domain than they are in.
    """
    domains: Domains = {}
    for node in graph.nodes:
        if node.op == "call_function":
            rule = _rule(node.target)
            domains[node] = rule(node, domains) if rule is not None else None
        elif node.op == "placeholder":
            domains[node] = sources.get(node.name)
    return domains


def _close(a: Scale, b: Scale) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=TOLERANCE)
    if isinstance(a, float):
        a = (a,) * len(b)  # type: ignore[arg-type]
    elif isinstance(b, float):
        b = (b,) * len(a)
    return len(a) == len(b) and all(map(_close, a, b))  # type: ignore[arg-type]


def _meet(
    node: Node,
    reader: Node,
    actual: Domain | None,
    expected: Domain,
) -> None:
    """Report the node that gives a value its domain if the reader expects another one."""
    if actual is not None and not same(actual, expected):
        broken(
            node, f"gives {shown(actual)}, and {reader.name} reads {shown(expected)}"
        )


def _first(node: Node, of: Domains) -> Domain | None:
    value = node.args[0]
    if isinstance(value, Node):
        return of.get(value)
    return None


def _agree(values: Iterable[Argument], node: Node, of: Domains) -> Domain | None:
    """Require all operands in one domain, and return it as the result's; None if that of one is unknown."""
    common: Domain | None = None
    all_known = True
    for value in values:
        if not isinstance(value, Node):
            continue
        domain = of.get(value)
        if domain is None:
            all_known = False
        elif common is None:
            common = domain
        else:
            _meet(value, node, domain, common)
    if all_known:
        return common
    return None


def _list(node: Node, of: Domains) -> Domain | None:
    return _agree(node.args[0], node, of)  # type: ignore[arg-type]


def _binary(node: Node, of: Domains) -> Domain | None:
    return _agree(node.args[:2], node, of)


def _compare(node: Node, of: Domains) -> Domain | None:
    _agree(node.args[:2], node, of)
    return None


def _where(node: Node, of: Domains) -> Domain | None:
    return _agree(node.args[1:3], node, of)


def _product(node: Node, of: Domains) -> Domain | None:
    """Multiply the scales of the operands; both zero points have been taken off before."""
    factors = [of.get(value) for value in node.args[:2] if isinstance(value, Node)]
    if len(factors) != 2 or not _is_wide(node):
        return _landing(node, of)
    product = 1.0
    for factor in factors:
        if factor is None or factor[1] != 0 or not isinstance(factor[0], float):
            return None
        product *= factor[0]
    return product, 0


def _rescale(node: Node, of: Domains) -> Domain | None:
    arguments: tuple[Any, ...] = node.args
    value, _, factors, zero_in, zero_out = arguments[:5]
    domain = of.get(value)
    if domain is None:
        return None
    if any(isinstance(each, Node) for each in (*factors, zero_in, zero_out)):
        return None
    scale, zero_point = domain
    if zero_point != zero_in:
        broken(
            node,
            f"takes zero point {zero_in} off values whose zero point is {zero_point}",
        )
    scales = scale if isinstance(scale, tuple) else (scale,) * len(factors)
    if len(factors) == 1:
        factors = (*factors,) * len(scales)
    if len(factors) != len(scales) or not all(factors):
        return None
    landed = tuple(s / factor for s, factor in zip(scales, factors, strict=True))
    if _close(landed[0], landed):
        return landed[0], int(zero_out)
    if not _is_wide(node):
        ends = f"{min(landed):.6g} to {max(landed):.6g}"
        broken(node, f"gives its channels scales from {ends}")
    return landed, int(zero_out)


def _accumulate(node: Node, of: Domains) -> Domain | None:
    """Require the operands of a convolution or matmul in the domains of its input qparams, and multiply those."""
    ins = input_qparams(node)
    _reads(node, (0, 1), of)
    # No sum in front of its RESCALE, but traced behind a cumsum, whose codes torch makes int64.
    is_aten = op_name(node).startswith("aten::")
    promoted = is_aten and node.meta["val"].dtype == torch.int64
    if promoted or not _is_wide(node):
        return _promised(node)
    if 0 not in ins or 1 not in ins:
        return None
    left = ins[0].scale
    right = ins[1].scale
    if isinstance(right, (list, tuple)):
        return tuple(left * each for each in right), 0
    return left * right, 0


def _conv_rescale(node: Node, of: Domains) -> Domain | None:
    """Require that a RESCALE of a convolution's or matmul's sums gives that operator's output qparams.

    A RESCALE of its codes, as before control flow in another domain, may give any.
    """
    landed = _rescale(node, of)
    source = node.args[0]
    if landed is None or not isinstance(source, Node):
        return landed
    of_sums = op_name(source) in _ACCUMULATES and _is_wide(source)
    expected = _promised(source) if of_sums and not _is_wide(node) else None
    if expected is not None and not same(landed, expected):
        broken(
            node,
            f"gives {shown(landed)}, and the output qparams are {shown(expected)}",
        )
    return landed


def _landing(node: Node, of: Domains) -> Domain | None:
    """Go from an operator's input qparams to its output qparams, as a table does."""
    _reads(node, input_qparams(node), of)
    # A 16-bit table has fractional bits that a RESCALE behind it takes off.
    if _is_wide(node):
        return None
    return _promised(node)


def _negated(node: Node, of: Domains) -> Domain | None:
    """Turn codes round between the zero points of the qparams; the step stays."""
    value = _first(node, of)
    promised = _promised(node)
    qparams = input_qparams(node).get(0)
    if qparams is not None:
        read = domain_of(qparams)
        _meet(node.args[0], node, value, read)  # type: ignore[arg-type]
        if promised is not None and not _close(read[0], promised[0]):
            way = f"from {shown(read)} to {shown(promised)}"
            broken(node, f"keeps the step of its input, and goes {way}")
    if _is_wide(node):
        return value
    return promised


def _reads(node: Node, indices: Iterable[int], of: Domains) -> None:
    """Require those arguments in the domains of the node's input qparams."""
    ins = input_qparams(node)
    for index in indices:
        value = node.args[index] if index < len(node.args) else None
        if isinstance(value, Node) and index in ins and not ins[index].per_channel:
            _meet(value, node, of.get(value), domain_of(ins[index]))


def _promised(node: Node) -> Domain | None:
    """Return the domain of a node's output qparams."""
    qparams = output_qparams(node)
    if qparams is None:
        return None
    return domain_of(qparams)


def _dequantize(node: Node, of: Domains) -> Domain | None:
    value = node.args[0]
    domain = _written(node)
    if isinstance(value, Node) and domain is not None:
        _meet(value, node, of.get(value), domain)
    return None


def _quantize(node: Node, of: Domains) -> Domain | None:
    return _written(node)


def _written(node: Node) -> Domain | None:
    """Return the domain in the arguments of a Q or DQ node, None if they are not numbers."""
    scale, zero_point = node.args[1:3]
    if isinstance(scale, float) and isinstance(zero_point, int):
        return scale, zero_point
    return None


def _is_wide(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in (torch.int32, torch.int64)


Rule = Callable[[Node, Domains], Domain | None]
_ACCUMULATES = named(
    "convolution linear bmm mm tosa::CONV2D tosa::CONV3D tosa::DEPTHWISE_CONV2D tosa::TRANSPOSE_CONV2D tosa::MATMUL"
)
#: Operators whose codes are some of their first argument's, or bounds and constants in its domain.
MOVES = operators(
    ElementOrigin.VIEW,
    ElementOrigin.PART,
    ElementOrigin.EXTREME,
    ElementOrigin.BOUNDED,
    ElementOrigin.PADDED,
)
#: Functions that the backend reads from a table.
_FUNCTIONS = named(
    "sigmoid tanh exp reciprocal rsqrt log gelu erf hardsigmoid hardswish silu elu leaky_relu pow sin tosa::TABLE"
)
_RULES: dict[str, Rule] = {
    **dict.fromkeys(MOVES | named("sum abs tosa::REDUCE_SUM tosa::ABS"), _first),
    **dict.fromkeys(operators(ElementOrigin.JOINED), _list),
    **dict.fromkeys(
        named(
            "add sub maximum minimum tosa::ADD tosa::SUB tosa::MAXIMUM tosa::MINIMUM"
        ),
        _binary,
    ),
    **dict.fromkeys(
        named("eq ge gt le lt tosa::EQUAL tosa::GREATER tosa::GREATER_EQUAL"), _compare
    ),
    **dict.fromkeys(named("where tosa::SELECT"), _where),
    **dict.fromkeys(named("mul tosa::MUL"), _product),
    **dict.fromkeys(_ACCUMULATES, _accumulate),
    **dict.fromkeys(named("neg tosa::NEGATE"), _negated),
    **dict.fromkeys(_FUNCTIONS, _landing),
    "tosa::RESCALE": _conv_rescale,
    "quantized_decomposed::quantize_per_tensor": _quantize,
    "quantized_decomposed::dequantize_per_tensor": _dequantize,
}


@cache
def _rule(target: Hashable) -> Rule | None:
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return _RULES.get(schema.name)
    return None
