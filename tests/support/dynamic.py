"""Programs with dynamic sizes: nets, what is dynamic in them, and what a shape environment knows."""

import re

import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.exir import to_edge_transform_and_lower
from lowering import EDGE, get_symmetric_quantization_config, tosa
from torch.export import Dim

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.programs import user_outputs


class UNet(nn.Module):
    """One level: a ReLU that skips into a cat, pooled and upsampled."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.down, self.inner, self.up = (nn.Conv2d(i, o, 3, padding=1) for i, o in ((3, 4), (4, 4), (8, 3)))

    def forward(self, x):
        skip = F.relu(self.down(x))
        inner = F.interpolate(F.relu(self.inner(F.max_pool2d(skip, 2))), scale_factor=2.0, mode="nearest")
        return self.up(torch.cat((inner, skip), 1))


class VitBlock(nn.Module):
    """Attention with one head and a feed-forward layer, each with a norm before and a residual round it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.norm, self.norm_b = nn.LayerNorm(8), nn.LayerNorm(8)
        self.wide, self.back = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        y = self.norm(x)
        scores = torch.softmax(self.q(y) @ self.k(y).transpose(1, 2) * 8**-0.5, -1)
        x = x + self.out(scores @ self.v(y))
        return x + self.back(F.gelu(self.wide(self.norm_b(x))))


def conv():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()


def linear():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


#: By name: the net, its example, what is dynamic in its input, and three sizes of that: the smallest, one, the largest.
NETS = {
    "conv-batch": (conv, (4, 3, 16, 16), lambda: {0: Dim("b", min=2, max=8)}, (0, (2, 5, 8))),
    "conv-height": (conv, (4, 3, 16, 16), lambda: {2: 4 * Dim("h", min=2, max=16)}, (2, (8, 32, 64))),
    "linear-batch": (linear, (4, 8), lambda: {0: Dim("b", min=2, max=8)}, (0, (2, 5, 8))),
    "linear-length": (linear, (1, 6, 8), lambda: {1: Dim("n", min=2, max=12)}, (1, (2, 7, 12))),
    "vit-batch": (lambda: VitBlock().eval(), (2, 6, 8), lambda: {0: Dim("b", min=2, max=6)}, (0, (2, 3, 6))),
    "vit-length": (lambda: VitBlock().eval(), (1, 6, 8), lambda: {1: Dim("n", min=2, max=12)}, (1, (2, 7, 12))),
    "unet-batch": (lambda: UNet().eval(), (2, 3, 16, 16), lambda: {0: Dim("b", min=2, max=6)}, (0, (2, 3, 6))),
    "unet-height": (lambda: UNet().eval(), (1, 3, 16, 16), lambda: {2: 4 * Dim("h", min=2, max=8)}, (2, (8, 20, 32))),
}


def quantised(name, profile):
    """Return a net's program, exported with what is dynamic in it, its module, and inputs at three sizes."""
    make, shape, dynamic, (dim, sizes) = NETS[name]
    example = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 2 - 1,)
    exported = torch.export.export(make(), example, dynamic_shapes=(dynamic(),))
    module = exported.module(check_guards=False)
    if "INT" in profile:
        quantizer = SafeTOSAQuantizer(tosa(profile))
        quantizer.set_global(get_symmetric_quantization_config())
        module = quantizer.quantize_with_submodules(module, [example])
    program = torch.export.export(module, example, dynamic_shapes=(dynamic(),))
    inputs = [(torch.rand([*shape[:dim], n, *shape[dim + 1 :]]) * 2 - 1,) for n in sizes]
    return program, module, inputs


def lowered(program, partitioner):
    return to_edge_transform_and_lower(program, partitioner=[partitioner], compile_config=EDGE)


def environment(program):
    """The shape environment of a program."""
    values = (node.meta.get("val") for node in program.graph.nodes)
    return next(value.fake_mode.shape_env for value in values if hasattr(value, "fake_mode"))


def guards(program):
    return [str(guard.expr) for guard in environment(program).guards]


def symbols(program):
    """The shapes of a program's inputs and outputs, its symbols numbered, and their ranges; one number is none."""
    ranges = {symbol: each for symbol, each in program.range_constraints.items() if each.lower != each.upper}
    names = {str(symbol): f"d{number}" for number, symbol in enumerate(sorted(ranges, key=str))}
    inputs = {*program.graph_signature.user_inputs}
    nodes = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in inputs]
    shapes = []
    for node in (*nodes, *user_outputs(program, program.graph.output_node().args[0])):
        sizes = map(str, node.meta["val"].shape)
        shapes.append(tuple(re.sub(r"s\d+", lambda found: names.get(found[0], "?"), size) for size in sizes))
    return shapes, sorted(map(str, ranges.values()))
