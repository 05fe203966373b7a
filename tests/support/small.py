"""Small modules and hand-made quantised graphs for the tests of single rules."""

import torch
import torch.nn as nn
from torch.fx.passes.operator_support import OperatorSupportBase

from safe_arm._compat.upstream import ArmAnnotationInfo

Q = torch.ops.quantized_decomposed.quantize_per_tensor.default
DQ = torch.ops.quantized_decomposed.dequantize_per_tensor.default


class Lambda(nn.Module):
    """A forward written in one line, over a few layers."""

    def __init__(self, forward) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.conv_b = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.linear = nn.Linear(8, 8)
        self.function = forward
        self.eval()

    def forward(self, x, *more):
        return self.function(self, x, *more)


class Built(nn.Module):
    """A forward written in one line, over the layers, parameters and buffers that it is given by name."""

    def __init__(self, forward, **parts) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self.function = forward

    def forward(self, x, *more):
        return self.function(self, x, *more)


class Residual(nn.Module):
    """So many convolutions, each with its input added and a relu behind."""

    def __init__(self, blocks) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(blocks))

    def forward(self, x):
        for conv in self.convs:
            x = torch.relu(conv(x) + x)
        return x


def together(rules, *names):
    """A rule that gives the results of several, or of those of some names: what holds of each is asked once."""
    return lambda m, *inputs: [rules[name](m, *inputs) for name in names or rules]


def norm_as_trained(module):
    """Give a norm statistics and factors that are not those of a new one; tell whether the module is a norm."""
    if not isinstance(module, (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)):
        return False
    if getattr(module, "running_mean", None) is not None:
        nn.init.uniform_(module.running_mean, -0.5, 0.5)
        nn.init.uniform_(module.running_var, 0.5, 1.5)
    if module.weight is not None:
        nn.init.uniform_(module.weight, 0.5, 1.5)
        nn.init.uniform_(module.bias, -0.2, 0.2)
    return True


def looks(value):
    """All that a fake tensor says of itself; its repr leaves the strides out."""
    if isinstance(value, torch.Tensor):
        return repr(value), value.stride(), value.requires_grad
    return [looks(each) for each in value] if isinstance(value, (list, tuple)) else value


def described(module):
    """All that can be told of the nodes of a graph module."""
    return [
        (n.name, n.op, str(n.target), repr(n.args), repr(n.kwargs), looks(n.meta.get("val")), sorted(n.meta))
        for n in module.graph.nodes
    ]


def image(seed=0, gain=1.0, rows=1):
    """One input of so many 4x8x8 images in [-gain, gain]."""
    return ((torch.rand((rows, 4, 8, 8), generator=torch.Generator().manual_seed(seed)) * 2 - 1) * gain,)


def qdq(value, scale, zero_point, qmin=-128, qmax=127):
    """Quantise and dequantise a value, as a converted graph does."""
    return DQ(Q(value, scale, zero_point, qmin, qmax, torch.int8), scale, zero_point, qmin, qmax, torch.int8)


class HandMadeIsland(nn.Module):
    """DQ, conv, an activation directly behind it, Q: what a quantiser of the user's own may produce."""

    def __init__(self, activation, scale=0.05, zero_point=-100, qmin=-128, qmax=127) -> None:
        super().__init__()
        torch.manual_seed(0)
        codes = torch.randint(-127, 128, (4, 4, 3, 3), dtype=torch.int8)
        self.register_buffer("weight", codes)
        self.activation, self.output = activation, (scale, zero_point, qmin, qmax)

    def forward(self, x):
        weight = DQ(self.weight, 0.01, 0, -127, 127, torch.int8)
        return qdq(self.activation(torch.nn.functional.conv2d(qdq(x, 1 / 128, 0), weight, padding=1)), *self.output)


def mark_quantised(graph_module):
    """Give every operator node Arm's mark, as its quantisers do."""
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and "quantized_decomposed" not in str(node.target):
            node.meta["custom"] = {
                **node.meta.get("custom", {}),
                ArmAnnotationInfo.CUSTOM_META_KEY: {"quantized": True},
            }
    return graph_module


def marked(net, inputs):
    """A hand-made quantised net, exported and marked."""
    return mark_quantised(torch.export.export(net, inputs).module())


class But(OperatorSupportBase):
    """Refuses the operators that have one of some texts in their names."""

    def __init__(self, *texts) -> None:
        self.texts = texts

    def is_node_supported(self, submodules, node):
        return not any(text in str(node.target) for text in self.texts)


class Nothing(OperatorSupportBase):
    """Leaves everything to the next partitioner: the runtime at hand has no Arm backend to run a delegate on."""

    def is_node_supported(self, submodules, node):
        return False
