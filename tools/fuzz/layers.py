"""What a net is made of that has weights: convolutions, linears, norms, recurrent layers, and layers used twice."""

from tools.fuzz.net_source import NetSource, Value
from tools.fuzz.operators import ACTIVATIONS, filled

_NORMS = (
    "nn.LayerNorm({last})",
    "nn.BatchNorm{d}d({c})",
    "nn.GroupNorm(1, {c})",
    "nn.InstanceNorm{d}d({c}, affine=True)",
    "nn.RMSNorm({last})",
)


def convolution(net: NetSource) -> bool:
    """Add a convolution, now and then with a batch norm and an activation behind."""
    values = net.floats(lambda shape: len(shape) in (3, 4, 5) and 0 not in shape)
    if not values:
        return _linear_on(net, net.pick(net.floats()))
    x = net.pick(values)
    d, channels = len(x.shape) - 2, x.shape[1]
    groups = net.one_of([g for g in (1, 1, 2, channels) if channels % g == 0])
    out = groups * net.integer(1, max(1, 6 // groups))
    transposed = "Transpose" if net.integer(0, 5) == 5 else ""
    kernel, stride, padding = net.integer(1, 3), net.integer(1, 2), net.integer(0, 1)
    dilation = 1 + (net.integer(0, 5) == 5)
    layer = (
        f"nn.Conv{transposed}{d}d({channels}, {out}, {kernel}, stride={stride}, padding={padding}, groups={groups}, "
        f"dilation={dilation}, bias={net.integer(0, 3) < 3})"
    )
    return _followed(net, x, layer, f"nn.BatchNorm{d}d({out})")


def linear(net: NetSource) -> bool:
    """Add a linear layer."""
    return _linear_on(net, net.pick(net.floats()))


def _linear_on(net: NetSource, x: Value) -> bool:
    if not x.shape:
        return False
    return _followed(net, x, f"nn.Linear({x.shape[-1]}, {net.integer(1, 8)}, bias={net.integer(0, 3) < 3})", "")


def _followed(net: NetSource, x: Value, layer: str, norm: str) -> bool:
    if not net.add(f"{net.layer(layer)}({x.name})"):
        return False
    if norm and net.integer(0, 2) == 2:
        net.add(f"{net.layer(norm)}({net.values[-1].name})")
    if net.integer(0, 1):
        net.add(filled(net, net.one_of(ACTIVATIONS[:14]), net.values[-1]))
    return True


def norm(net: NetSource) -> bool:
    """Add a norm."""
    x = net.pick(net.floats())
    sizes = {"last": x.shape[-1] if x.shape else 1, "c": x.shape[1] if len(x.shape) > 1 else 1}
    dims = max(1, len(x.shape) - 2)
    norms = [each for each in _NORMS if dims < 4 or "{d}" not in each]
    return net.add(f"{net.layer(net.one_of(norms).format(d=dims, **sizes))}({x.name})")


def shared(net: NetSource) -> bool:
    """Call a layer once more, on another value."""
    layers = [name for name, text in net.layers.items() if text.startswith(("nn.Conv", "nn.Linear"))]
    if not layers:
        return linear(net)
    return net.add(f"self.{net.one_of(layers)}({net.pick(net.floats()).name})")


def recurrent(net: NetSource) -> bool:
    """Add a recurrent layer or an attention."""
    values = net.floats(lambda shape: len(shape) == 3 and 0 not in shape and shape[1] <= 4)
    if not values:
        return False
    x = net.pick(values)
    kind = net.one_of(["GRU", "LSTM", "RNN", "attention"])
    if kind == "attention":
        layer = net.layer(f"nn.MultiheadAttention({x.shape[-1]}, 1, batch_first=True)")
        return net.add(f"{layer}({x.name}, {x.name}, {x.name}, need_weights=False)[0]")
    return net.add(f"{net.layer(f'nn.{kind}({x.shape[-1]}, 3, batch_first=True)')}({x.name})[0]")


def embedding(net: NetSource) -> bool:
    """Look an integer input up in a table, or count with it."""
    integers = [v for v in net.values if not v.meta.is_floating_point() and v.name.startswith("x")]
    if not integers:
        return False
    x = net.pick(integers)
    if x.meta.dtype.is_signed and net.integer(0, 2):
        return net.add(f"{net.layer(f'nn.Embedding(8, {net.integer(1, 6)})')}({x.name})")
    return net.add(f"{x.name}.to(torch.float32) * 0.5")
