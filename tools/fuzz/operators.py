"""What a net is made of: expressions with slots, by kind. A slot is filled by a draw, see ``SLOTS``.

An expression that cannot be evaluated on the value it is tried on is left out, so none has its conditions spelled out.
"""

import re
from collections.abc import Callable

from tools.fuzz.net_source import BOUNDS, SCALARS, NetSource, Value


def _other(net: NetSource, x: Value) -> str:
    """Another value that broadcasts with one, a constant, a parameter, or itself."""

    def fits(shape: tuple[int, ...]) -> bool:
        return all(a in (b, 1) or b == 1 for a, b in zip(reversed(shape), reversed(x.shape), strict=False))

    kind = net.integer(0, 5)
    if kind <= 3:
        return net.pick(net.floats(fits)).name
    shape = list(x.shape[net.integer(0, len(x.shape)) :]) if x.shape else []
    maker = "nn.Parameter(torch.rand({}) * 2 - 1)" if kind == 4 else "torch.rand({}) * 2 - 1"
    return net.layer(maker.format(shape))


def _alike(net: NetSource, x: Value) -> str:
    """A value of the same rank."""
    return net.pick(net.floats(lambda shape: len(shape) == len(x.shape))).name


def _same(net: NetSource, x: Value) -> str:
    return net.pick(net.floats(lambda shape: shape == x.shape)).name


def _dim(net: NetSource, x: Value) -> str:
    return str(net.integer(-len(x.shape), len(x.shape) - 1) if x.shape else 0)


def _factors(net: NetSource, x: Value) -> str:
    """A shape with as many elements: two dims merged, one split, a one added, or all flat."""
    shape, kind = list(x.shape), net.integer(0, 3)
    if kind == 0 or not shape:
        return str([-1])
    at = net.integer(0, len(shape) - 1)
    if kind == 1 and at + 1 < len(shape):
        return str([*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]])
    if kind == 2 and shape[at] % 2 == 0:
        return str([*shape[:at], 2, shape[at] // 2, *shape[at + 1 :]])
    return str([*shape[:at], 1, *shape[at:]])


def _order(net: NetSource, x: Value) -> str:
    rest, order = list(range(len(x.shape))), []
    while rest:
        order.append(rest.pop(net.integer(0, len(rest) - 1)))
    return str(order)


def _bounds(net: NetSource, x: Value) -> str:
    return "{}, {}".format(*net.one_of(BOUNDS))


def _dims(net: NetSource, x: Value) -> str:
    return str(sorted({net.integer(0, max(0, len(x.shape) - 1)) for _ in range(net.integer(1, 2))}))


def _pad(net: NetSource, x: Value) -> str:
    return str([net.integer(0, 2) for _ in range(2 * net.integer(1, max(1, min(3, len(x.shape)))))])


#: By the name of a slot, what fills it.
SLOTS: dict[str, Callable[[NetSource, Value], str]] = {
    "x": lambda net, x: x.name,
    "y": _other,
    "z": _alike,
    "s": _same,
    "w": _same,
    "dim": _dim,
    "dim2": _dim,
    "dims": _dims,
    "c": lambda net, x: str(net.one_of(SCALARS)),
    "c2": lambda net, x: str(net.one_of(SCALARS)),
    "n": lambda net, x: str(net.integer(1, 3)),
    "i": lambda net, x: str(net.integer(-2, 2)),
    "bool": lambda net, x: str(bool(net.integer(0, 1))),
    "bounds": _bounds,
    "reshaped": _factors,
    "order": _order,
    "pad": _pad,
    "shape": lambda net, x: str(list(x.shape)),
    "last": lambda net, x: str(x.shape[-1] if x.shape else 1),
    "cmp": lambda net, x: net.one_of(["gt", "lt", "ge", "le", "eq", "ne"]),
    "state": lambda net, x: net.layer(f"torch.rand({list(x.shape)}) - 0.5"),
    "rows": lambda net, x: net.layer(f"torch.zeros({[3, x.meta.numel()]})"),
    "count": lambda net, x: net.layer("torch.zeros([], dtype=torch.int64)"),
    "flag": lambda net, x: net.layer("torch.ones([1], dtype=torch.bool)"),
}

ACTIVATIONS = (
    "torch.relu({x})", "F.relu6({x})", "F.hardtanh({x}, {bounds})", "torch.clamp({x}, {bounds})",
    "{x}.clamp(min={c})", "{x}.clamp(max={c})", "F.leaky_relu({x}, 0.1)", "torch.sigmoid({x})", "torch.tanh({x})",
    "F.silu({x})", "F.gelu({x})", "F.gelu({x}, approximate='tanh')", "F.hardswish({x})", "F.hardsigmoid({x})",
    "F.elu({x})", "F.selu({x})", "F.celu({x}, 0.5)", "F.softplus({x})", "F.mish({x})", "F.logsigmoid({x})",
    "F.softsign({x})", "F.threshold({x}, {c}, {c2})", "F.hardshrink({x})", "F.softshrink({x})", "F.tanhshrink({x})",
    "F.glu({x}, {dim})", "F.prelu({x}, torch.full([1], 0.2))", "F.relu_({x} + 0)",
)  # fmt: skip
UNARY = (
    "torch.abs({x})", "torch.neg({x})", "-{x}", "torch.exp({x})", "torch.exp(-{x}.abs())",
    "torch.log({x}.abs() + 0.5)", "torch.sqrt({x}.abs())", "torch.rsqrt({x}.abs() + 0.25)",
    "torch.reciprocal({x}.abs() + 0.5)", "torch.sin({x})", "torch.cos({x})", "torch.erf({x})", "torch.floor({x} * 2)",
    "torch.ceil({x} * 2)", "torch.round({x} * 3)", "torch.sign({x})", "torch.square({x})", "{x} ** 2", "{x} ** 3",
    "{x}.abs() ** 0.5", "torch.log1p({x}.abs())", "torch.expm1({x})", "torch.atan({x})", "torch.asinh({x})",
    "torch.sinh({x})", "torch.cosh({x})", "torch.trunc({x} * 2)", "{x} + {c}", "{x} - {c}", "{c} - {x}", "{x} * {c}",
    "{x} / 2.5", "{c} * {x} + {c2}", "{x}.detach()", "{x}.clone()", "{x}.contiguous()",
    "torch.add({x}, 1, alpha={c})", "torch.nan_to_num({x})", "{x}.to(torch.float32)", "{x} % 0.75",
    "torch.remainder({x}, 0.5)", "torch.fmod({x}, 0.5)", "torch.asin({x}.clamp(-1, 1))",
    "torch.acos({x}.clamp(-1, 1))", "torch.atanh({x}.clamp(-0.9, 0.9))", "torch.tan({x})",
    "torch.log2({x}.abs() + 0.5)", "torch.exp2({x})", "torch.frac({x})",
)  # fmt: skip
BINARY = (
    "{x} + {y}", "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} * {y}", "torch.maximum({x}, {y})",
    "torch.minimum({x}, {y})", "{x} / ({y}.abs() + 0.5)", "torch.add({x}, {y}, alpha={c})",
    "torch.sub({y}, {x}, alpha=2)", "torch.lerp({x}, {s}, 0.25)", "torch.where({x} > {c}, {x}, {s})",
    "torch.where({x} {sign} {s}, {s}, {w})", "torch.where({x}.{cmp}({s}), {x}, {w})",
    "({x}.{cmp}({s})).to(torch.float32)", "torch.where({x} > 0, {x}, torch.zeros_like({x}))", "torch.hypot({x}, {s})",
    "torch.addcmul({x}, {s}, {w}, value=0.5)", "torch.atan2({x}, {s})", "torch.masked_fill({x}, {s} > {c}, {c2})",
    "({x} > 0).logical_and({s} > 0).to(torch.float32) * {w}", "torch.pow({x}.abs() + 0.5, {s})",
    "torch.floor_divide({x}, 0.5)", "torch.copysign({x}, {s})",
)  # fmt: skip
JOINS = (
    "torch.cat(({x}, {z}), {dim})", "torch.cat(({x}, {z}), {dim})", "torch.cat(({x}, {z}, {x}), {dim})",
    "torch.stack(({x}, {s}), {dim})", "torch.stack(({x}, {s}, {w}), {dim})",
    "torch.cat((torch.relu({x}), {s}), {dim})", "torch.cat(({x}, torch.zeros_like({x})), {dim})",
    "torch.cat(({x}, torch.ones({shape})), {dim})",
)  # fmt: skip
VIEWS = (
    "{x}.reshape({reshaped})", "{x}.reshape({reshaped})", "torch.flatten({x}, 1)", "{x}.permute({order})",
    "{x}.transpose({dim}, {dim2})", "{x}.unsqueeze({dim})", "{x}.squeeze()", "{x}.squeeze({dim})", "{x}[{i}]",
    "{x}[..., 1:]", "{x}[:, {i}]", "{x}[..., ::2]", "{x}[..., :-1]", "{x}.narrow({dim}, 0, {n})",
    "{x}.select({dim}, {i})", "{x}.expand(2, *{x}.shape)", "{x}.repeat(*[2] + [1] * ({x}.dim() - 1))",
    "torch.flip({x}, {dims})", "{x}.chunk(2, {dim})", "torch.split({x}, {n}, {dim})", "{x}.unbind({dim})",
    "F.pad({x}, {pad})", "F.pad({x}, {pad}, value={c})", "F.pad({x}, {pad}, mode='reflect')",
    "F.pad({x}, {pad}, mode='replicate')", "F.pad({x}, {pad}, mode='circular')", "F.pixel_shuffle({x}, 2)",
    "F.pixel_unshuffle({x}, 2)", "torch.roll({x}, {n}, {dim})", "torch.tril({x})", "torch.triu({x}, {i})",
    "torch.index_select({x}, {dim}, torch.tensor([0, 0]))", "{x}.to(memory_format=torch.channels_last)", "{x}.mT",
    "torch.tile({x}, (2,))", "{x}.view({shape})", "F.interpolate({x}, scale_factor=2.0)", "{x}[None]",
    "F.interpolate({x}, scale_factor=2.0, mode='bilinear', align_corners={bool})",
    "F.interpolate({x}, size=5, mode='nearest')", "{x}.as_strided({shape}, {x}.stride())",
    "torch.movedim({x}, {dim}, {dim2})", "{x}.unfold({dim}, 2, 1)", "torch.cumsum({x}, {dim})", "{x}.flatten()",
    "torch.diff({x}, dim={dim})", "torch.channel_shuffle({x}, 2)",
)  # fmt: skip
#: A part of a value of its own is written over, then the whole is read.
WRITES = (
    "(lambda y: (y[..., :1].mul_({c}), y)[1])({x} * 1)",
    "(lambda y: (y.select({dim}, {i}).fill_({c}), y)[1])({x} * 2)",
    "(lambda y: (y.narrow({dim}, 0, {n}).copy_({x}.narrow({dim}, 0, {n}) * 0.5), y)[1])(torch.zeros_like({x}))",
    "(lambda y: (y[..., ::2].relu_(), y)[1])({x} + 0.25)",
    "(lambda y: (y.chunk(2, {dim})[0].add_({c}), y)[1])({x} - 0.5)",
    "(lambda y: (y.view(-1)[:2].neg_(), y)[1])({x} * 1)",
    "(lambda y: (y.transpose({dim}, {dim2})[:1].sigmoid_(), y)[1])({x} * 1)",
    "(lambda y, z: (y.add_({c}), z * 2)[1])(*(lambda y: (y, y[..., 1:]))({x} * 1))",
)
#: What goes on from call to call; each call of a net writes into a buffer.
STATES = (
    "(lambda s, y: (s.mul_(0.5).add_(y), s * 1)[1])({state}, {x})",
    "(lambda s, y: (s + y, s.copy_(y))[0])({state}, {x})",
    "(lambda s, y: (y - s, s.copy_((s + y) * 0.5))[0])({state}, {x})",
    "(lambda s, y: s.copy_(torch.maximum(s, y)) * {c})({state}, {x})",
    "(lambda s, y: (s[..., :1].copy_(y[..., :1]), s + y)[1])({state}, {x})",
    "(lambda s, y: (s.copy_(torch.cat((s[..., 1:], y[..., :1]), -1)), s * 2)[1])({state}, {x})",
    "(lambda n, y: (n.add_(1), y * n)[1])({count}, {x})",
    "(lambda n, y: (torch.where(n == 0, y, y * {c}), n.add_(1))[0])({count}, {x})",
    "(lambda f, y: (torch.where(f, y, -y), f.logical_not_())[0])({flag}, {x})",
    "(lambda r, n, y: (r.index_copy_(0, (n % 3).view(1), y.reshape(1, -1)), n.add_(1), r.mean(0).view(y.shape))[2])"
    "({rows}, {count}, {x})",
    "(lambda r, n, y: (r.copy_(torch.where((torch.arange(3) == n % 3).view(3, 1), y.reshape(1, -1), r)), n.add_(1), "
    "r.sum(0).view(y.shape))[2])({rows}, {count}, {x})",
    "(lambda s, t, y: (t.copy_(s), s.copy_(y), y - t)[2])({state}, {state}, {x})",
)
POOLS = (
    "F.max_pool2d({x}, 2)", "F.max_pool2d({x}, 3, 1, 1)", "F.max_pool2d({x}, 2, 1, ceil_mode={bool})",
    "F.avg_pool2d({x}, 2)", "F.avg_pool2d({x}, 3, 1, 1, count_include_pad={bool})",
    "F.avg_pool2d({x}, 2, 1, ceil_mode={bool})", "F.adaptive_avg_pool2d({x}, 1)", "F.adaptive_avg_pool2d({x}, 2)",
    "F.max_pool1d({x}, 2)", "F.avg_pool1d({x}, 2)", "F.max_pool2d({x}, (1, 2))", "F.max_pool2d({x}, 3, 2, 1, 2)",
    "F.adaptive_max_pool2d({x}, 1)", "F.avg_pool3d({x}, 2, 1)", "F.max_pool3d({x}, 2, 1)", "F.lp_pool2d({x}, 2, 2)",
)  # fmt: skip
REDUCTIONS = (
    "{x}.mean({dim}, keepdim={bool})", "{x}.mean({dims}, keepdim={bool})", "{x}.mean()",
    "{x}.sum({dim}, keepdim={bool})", "{x}.sum({dims})", "{x}.sum()", "{x}.amax({dim}, keepdim={bool})",
    "{x}.amin({dim}, keepdim={bool})", "{x}.max({dim})[0]", "{x}.min({dim})[0]", "torch.max({x})",
    "torch.softmax({x}, {dim})", "F.log_softmax({x}, {dim})", "{x}.var({dim}, keepdim={bool})",
    "torch.argmax({x}, {dim})", "({x} > {c}).any({dim})", "({x} > {c}).all({dim})", "{x}.std({dim})",
    "torch.linalg.vector_norm({x}, dim={dim})", "F.normalize({x}, dim={dim})", "torch.logsumexp({x}, {dim})",
    "F.layer_norm({x}, [{last}])", "torch.prod({x}, {dim})", "torch.topk({x}, 1, {dim})[0]",
    "torch.sort({x}, {dim})[0]", "F.cosine_similarity({x}, {s}, {dim})",
)  # fmt: skip
CONSTANTS = (
    "{x} + torch.ones({shape})", "{x} * torch.full([1], {c})", "{x} + torch.arange({last})",
    "{x} * torch.linspace(-1, 1, {last})", "{x} + torch.full_like({x}, {c})", "{x} * torch.ones_like({x})",
    "{x} - torch.zeros({shape})", "{x} + torch.tensor({c})", "{x} + torch.tensor([{c}, {c2}]).sum()",
    "torch.where(torch.arange({last}) > 1, {x}, {s})", "torch.zeros({shape})", "{x} + torch.eye({last})",
    "torch.full_like({x}, {c})", "{x} * torch.scalar_tensor({c})", "{x}.new_ones({shape}) - {x}",
)  # fmt: skip
PRODUCTS = (
    "{x} @ {x}.transpose(-1, -2)", "{x} @ {z}", "torch.bmm({x}, {x}.transpose(1, 2))",
    "torch.einsum('...i,...i->...', {x}, {s})", "F.scaled_dot_product_attention({x}, {x}, {x})",
    "torch.matmul({x}.transpose(-1, -2), {s})", "torch.outer({x}.flatten()[:4], {x}.flatten()[:4])",
    "F.scaled_dot_product_attention({x}, {s}, {w}, is_causal=True)", "torch.addmm({x}, {x}, {x}.T)",
)  # fmt: skip
INDEXED = (
    "{x}[torch.tensor([0, 0])]", "torch.gather({x}, {dim}, torch.zeros({shape}, dtype=torch.int64))",
    "{x}[:, torch.tensor([0])]", "torch.index_add({x}, 0, torch.tensor([0]), {s}[:1])",
    "{x}.index_fill({dim}, torch.tensor([0]), {c})",
    "torch.scatter({x}, {dim}, torch.zeros({shape}, dtype=torch.int64), {s})",
    "{x}.index_put((torch.tensor([0]),), {s}[:1])", "torch.slice_scatter({x}, {s}[:1], 0, 0, 1)",
    "torch.select_scatter({x}, {s}[0], 0, 0)",
)  # fmt: skip
#: A parameter, and what is computed from it alone.
OF_PARAMETERS = (
    "torch.softmax({p}.clamp(-0.5, 0.5), -1)", "torch.relu({p})", "torch.sigmoid({p}) * 2",
    "{p}.abs().sum(-1, keepdim=True)", "{p}.transpose(0, -1).contiguous().transpose(0, -1)", "{p} / {p}.norm()",
    "{p} * {p}", "torch.cat(({p}, {p}))[:{p}.shape[0]]",
)  # fmt: skip

#: What is to be left to the CPU, or refused with a clear error.
ODD = (
    "{x}.double().float()", "{x} * torch.tensor(float('inf'))", "{x} + float('nan')", "{x}.to(torch.float64) * 2",
    "({x} * 2**40).to(torch.int64)", "torch.view_as_real(torch.complex({x}, {s}))", "{x}[..., :0]",
    "{x}.half().float()", "torch.full({shape}, float('-inf')).maximum({x})", "{x}.bfloat16().float()",
    "torch.fft.fft({x}).real", "torch.full({shape}, 2**40, dtype=torch.int64)", "{x}.to(torch.int32) // 2",
    "torch.cat(({x}, {x}[..., :0]), -1)",
)  # fmt: skip

_SLOT = re.compile(r"{(\w+)}")


def filled(net: NetSource, template: str, x: Value) -> str:
    """Fill an expression's slots."""

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        return net.one_of([">", "<", ">=", "<="]) if name == "sign" else SLOTS[name](net, x)

    return _SLOT.sub(fill, template)


def of_template(templates: tuple[str, ...]) -> Callable[[NetSource], bool]:
    """Return what adds one of some expressions to a net."""

    def add(net: NetSource) -> bool:
        template, x = net.one_of(templates), net.pick(net.floats())
        return net.add(filled(net, template, x))

    return add


def parameters_alone(net: NetSource) -> bool:
    """Add something to a value that is computed of a parameter alone, or return that."""
    x = net.pick(net.floats())
    parameter = net.layer(f"nn.Parameter(torch.rand({[*x.shape[-2:]] or [3]}) * 2 - 1)")
    computed = net.one_of(OF_PARAMETERS).replace("{p}", parameter)
    return net.add(computed if net.integer(0, 4) == 4 else f"{x.name} * ({computed})")
