"""Which quantisation domain each value of a lowered graph is in, worked out from its inputs."""

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
from safe_arm.passes.invariants.watch import broken

#: Scale, one for all values or one a channel, and zero point.
Domain = tuple[float | tuple[float, ...], int]
Domains = dict[Node, Domain | None]

#: Scales are products and quotients of float64s.
TOLERANCE = 1e-6


def domain_of(qparams: QuantArgs) -> Domain:
    """Return the domain of a value with those qparams."""
    scale = qparams.scale
    if isinstance(scale, (list, tuple)):
        zero_points = (
            qparams.zp if isinstance(qparams.zp, (list, tuple)) else [qparams.zp]
        )
        return tuple(map(float, scale)), int(zero_points[0])
    return float(scale), int(qparams.zp)  # type: ignore[arg-type]


def same(a: Domain, b: Domain) -> bool:
    """Whether two domains agree, up to the rounding of their scales."""
    return a == b or (a[1] == b[1] and _close(a[0], b[0]))


def shown(domain: Domain) -> str:
    """Return a domain as reports write it."""
    scale, zero_point = domain
    text = (
        f"{scale:.6g}"
        if isinstance(scale, float)
        else f"[{', '.join(f'{s:.6g}' for s in scale[:4])}, ...]"
    )
    return f"scale {text}, zero point {zero_point}"


def infer(graph: Graph, sources: dict[str, Domain]) -> Domains:
    """Work out the domain of every value, None where nothing is known.

    Args:
        graph: any stage of the pipeline after Q and DQ have been folded.
        sources: what is known of placeholders, by name.

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


def _close(a: float | tuple[float, ...], b: float | tuple[float, ...]) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=TOLERANCE)
    if isinstance(a, float) or isinstance(b, float):
        one, many = (a, b) if isinstance(a, float) else (b, a)
        return all(math.isclose(one, each, rel_tol=TOLERANCE) for each in many)  # type: ignore[arg-type, union-attr]
    return len(a) == len(b) and all(
        math.isclose(x, y, rel_tol=TOLERANCE) for x, y in zip(a, b, strict=True)
    )


def _meet(node: Node, reader: Node, actual: Domain | None, expected: Domain) -> None:
    """Complain of the node that gives a value its domain if the reader takes it for another."""
    if actual is not None and not same(actual, expected):
        broken(
            node, f"gives {shown(actual)}, and {reader.name} reads {shown(expected)}"
        )


def _first(node: Node, of: Domains) -> Domain | None:
    value = node.args[0]
    return of.get(value) if isinstance(value, Node) else None


def _agree(values: Iterable[Argument], node: Node, of: Domains) -> Domain | None:
    """All operands in one domain; that of the result, None if one is unknown."""
    nodes = [value for value in values if isinstance(value, Node)]
    known = [
        (value, domain) for value in nodes if (domain := of.get(value)) is not None
    ]
    for value, domain in known[1:]:
        _meet(value, node, domain, known[0][1])
    return known[0][1] if known and len(known) == len(nodes) else None


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
    """Multiplied codes multiply their scales; both zero points have been taken off before."""
    factors = [of.get(value) for value in node.args[:2] if isinstance(value, Node)]
    if len(factors) != 2 or not _is_wide(node):
        return _landing(node, of)
    scales = [factor[0] for factor in factors if factor is not None and factor[1] == 0]
    if len(scales) != 2 or not all(isinstance(scale, float) for scale in scales):
        return None
    return scales[0] * scales[1], 0  # type: ignore[operator, return-value]


def _rescale(node: Node, of: Domains) -> Domain | None:
    arguments: tuple[Any, ...] = node.args
    value, _, factors, zero_in, zero_out = arguments[:5]
    domain = of.get(value) if isinstance(value, Node) else None
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
    channels = len(scale) if isinstance(scale, tuple) else len(factors)  # type: ignore[arg-type]
    scales = scale if isinstance(scale, tuple) else (scale,) * channels
    by = tuple(factors) * channels if len(factors) == 1 else tuple(factors)  # type: ignore[arg-type]
    if len(by) != len(scales) or not all(by):
        return None
    landed = tuple(s / factor for s, factor in zip(scales, by, strict=True))
    if not _close(landed[0], landed):
        if _is_wide(node):
            return landed, int(zero_out)  # type: ignore[arg-type]
        broken(
            node,
            f"gives its channels scales from {min(landed):.6g} to {max(landed):.6g}",
        )
    return landed[0], int(zero_out)  # type: ignore[arg-type]


def _accumulate(node: Node, of: Domains) -> Domain | None:
    """A convolution or matmul reads its operands in the domains its zero points and output rescale are made for."""
    ins = node.meta.get("input_qparams") or {}
    for index in (0, 1):
        value = node.args[index] if index < len(node.args) else None
        if isinstance(value, Node) and index in ins and not ins[index].per_channel:
            _meet(value, node, of.get(value), domain_of(ins[index]))
    # No sum in front of its RESCALE, but traced behind a cumsum, whose codes torch makes int64.
    promoted = (
        op_name(node).startswith("aten::") and node.meta["val"].dtype == torch.int64
    )
    if promoted or not _is_wide(node):
        outs = node.meta.get("output_qparams")
        return domain_of(next(iter(outs.values()))) if outs else None
    if 0 not in ins or 1 not in ins:
        return None
    left, right = ins[0].scale, ins[1].scale
    return (
        (tuple(left * each for each in right), 0)
        if isinstance(right, (list, tuple))
        else (left * right, 0)
    )


def _conv_rescale(node: Node, of: Domains) -> Domain | None:
    """A RESCALE of a convolution's or matmul's sums lands where that operator's output qparams say.

    One of its codes, as before control flow in another domain, lands where it says itself.
    """
    landed = _rescale(node, of)
    source = node.args[0]
    outs = (
        source.meta.get("output_qparams")
        if isinstance(source, Node) and op_name(source) in _ACCUMULATES
        else None
    )
    if landed is not None and outs and not _is_wide(node) and _is_wide(source):  # type: ignore[arg-type]
        expected = domain_of(next(iter(outs.values())))
        if not same(landed, expected):
            broken(
                node,
                f"gives {shown(landed)}, and the output qparams are {shown(expected)}",
            )
    return landed


def _landing(node: Node, of: Domains) -> Domain | None:
    """An operator that goes from its input qparams to its output qparams, as a table does."""
    ins, outs = (
        node.meta.get("input_qparams") or {},
        node.meta.get("output_qparams") or {},
    )
    for index, qparams in ins.items():
        value = node.args[index] if index < len(node.args) else None
        if isinstance(value, Node) and not qparams.per_channel:
            _meet(value, node, of.get(value), domain_of(qparams))
    # A 16-bit table has fractional bits that a RESCALE behind it takes off.
    return domain_of(next(iter(outs.values()))) if outs and not _is_wide(node) else None


def _negated(node: Node, of: Domains) -> Domain | None:
    """Codes are turned round between the zero points of the qparams; the step stays."""
    ins, outs = (
        node.meta.get("input_qparams") or {},
        node.meta.get("output_qparams") or {},
    )
    value, read = _first(node, of), ins.get(0)
    if read is not None:
        _meet(node.args[0], node, value, domain_of(read))  # type: ignore[arg-type]
    given = domain_of(next(iter(outs.values()))) if outs else None
    if (
        read is not None
        and given is not None
        and not _close(domain_of(read)[0], given[0])
    ):
        broken(
            node,
            f"keeps the step of its input, and goes from {shown(domain_of(read))} to {shown(given)}",
        )
    return given if not _is_wide(node) else value


def _dequantize(node: Node, of: Domains) -> Domain | None:
    value, scale, zero_point = node.args[:3]
    if (
        isinstance(value, Node)
        and isinstance(scale, float)
        and isinstance(zero_point, int)
    ):
        _meet(value, node, of.get(value), (scale, zero_point))
    return None


def _quantize(node: Node, of: Domains) -> Domain | None:
    scale, zero_point = node.args[1:3]
    return (
        (scale, zero_point)
        if isinstance(scale, float) and isinstance(zero_point, int)
        else None
    )


def _is_wide(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in (torch.int32, torch.int64)


def _named(namespace: str, *names: str) -> list[str]:
    return [f"{namespace}::{name}" for name in names]


Rule = Callable[[Node, Domains], Domain | None]
_ACCUMULATES = frozenset(
    (
        *_named(
            "tosa", "CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D", "MATMUL"
        ),
        *_named("aten", "convolution", "linear", "bmm", "mm"),
    )
)
#: Move or choose codes and never compute with them.
MOVES = frozenset(
    (
        *_named(
            "tosa",
            "RESHAPE",
            "TRANSPOSE",
            "SLICE",
            "REVERSE",
            "TILE",
            "PAD",
            "GATHER",
            "MAX_POOL2D",
        ),
        *_named("tosa", "REDUCE_MAX", "REDUCE_MIN", "IDENTITY", "CLAMP"),
        *_named(
            "aten",
            "view",
            "view_copy",
            "permute",
            "permute_copy",
            "transpose_copy",
            "slice",
            "slice_copy",
        ),
        *_named(
            "aten",
            "select",
            "select_copy",
            "squeeze",
            "squeeze_copy",
            "unsqueeze",
            "unsqueeze_copy",
        ),
        *_named(
            "aten",
            "expand",
            "expand_copy",
            "repeat",
            "clone",
            "alias_copy",
            "flip",
            "constant_pad_nd",
        ),
        *_named(
            "aten",
            "max_pool2d",
            "amax",
            "amin",
            "clamp",
            "index_select",
            "upsample_nearest2d",
            "unfold_copy",
        ),
        *_named("dim_order_ops", "_clone_dim_order"),
    )
)
_JOINS = ("aten::cat", "tosa::CONCAT")
_RULES: dict[str, Rule] = {
    **dict.fromkeys(MOVES, _first),
    **dict.fromkeys(_JOINS, _list),
    **dict.fromkeys(_named("aten", "add", "sub", "maximum", "minimum"), _binary),
    **dict.fromkeys(_named("tosa", "ADD", "SUB", "MAXIMUM", "MINIMUM"), _binary),
    **dict.fromkeys(_named("aten", "eq", "ge", "gt", "le", "lt"), _compare),
    **dict.fromkeys(_named("tosa", "EQUAL", "GREATER", "GREATER_EQUAL"), _compare),
    **dict.fromkeys(("aten::where", "tosa::SELECT"), _where),
    **dict.fromkeys(("aten::mul", "tosa::MUL"), _product),
    **dict.fromkeys(
        ("aten::sum", "tosa::REDUCE_SUM", "aten::abs", "tosa::ABS"), _first
    ),
    **dict.fromkeys(_ACCUMULATES, _accumulate),
    **dict.fromkeys(("aten::neg", "tosa::NEGATE"), _negated),
    "tosa::TABLE": _landing,
    **dict.fromkeys(
        _named(
            "aten",
            "sigmoid",
            "tanh",
            "exp",
            "reciprocal",
            "rsqrt",
            "log",
            "gelu",
            "erf",
        ),
        _landing,
    ),
    **dict.fromkeys(
        _named(
            "aten",
            "hardsigmoid",
            "hardswish",
            "silu",
            "elu",
            "leaky_relu",
            "pow",
            "sin",
        ),
        _landing,
    ),
    "tosa::RESCALE": _conv_rescale,
    "quantized_decomposed::quantize_per_tensor": _quantize,
    "quantized_decomposed::dequantize_per_tensor": _dequantize,
}


@cache
def _rule(target: Hashable) -> Rule | None:
    schema = getattr(target, "_schema", None)
    return _RULES.get(schema.name) if schema is not None else None
