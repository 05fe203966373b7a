"""Nets that stock ExecuTorch 1.5.1 lowers to something else and says nothing, by the ids of the known issues.

Tried, and right on 1.5.1: ``conv3d`` of a channels-last input (S9), ``remainder`` of two tensors (S10),
``floor_divide`` (S11), ``pow(x, 2)`` at 0 (S14).
``cat`` of codes and floats (S8) raises. Lost reductions on the Ethos-U85 (S3) and lost states (S4) need the hardware.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from lowering import quantize, tosa
from nets import IslandNet
from small import Lambda, image, mark_quantised, qdq

INT, MIXED = "TOSA-1.0+INT", "TOSA-1.0+INT+FP"


@dataclass(frozen=True)
class SilentBug:
    """A net that a profile quantises, the operators of which any must leave, and the profiles where stock is wrong."""

    issue: str
    name: str
    build: Callable[[str], tuple[Any, tuple[torch.Tensor, ...]]]
    culprits: tuple[str, ...]
    profiles: tuple[str, ...] = (INT, MIXED)

    @property
    def id(self) -> str:
        return f"{self.issue}-{self.name}"


def quantised(rule, inputs=image, *, narrow=False):
    """Build by our quantiser, which annotates as stock does but for relu6 and factories."""

    def build(profile):
        net, given = Lambda(rule), inputs()
        return quantize(net, given, tosa(profile), narrow=narrow), given

    return build


def island(kind, activation, join):
    def build(profile):
        torch.manual_seed(0)
        net = IslandNet(kind, activation, join).eval()
        return quantize(net, net.inputs(), tosa(profile)), net.inputs()

    core = {"linear": "aten::linear"}.get(kind, "aten::convolution")
    act = {"relu": "aten::relu"}.get(activation, "aten::hardtanh")
    return SilentBug("S1", f"{kind}-{activation}-{join}", build, (core, act))


def handmade(forward, inputs=image, unmarked=("mul",)):
    """A Q/DQ graph with Arm's mark on everything but the operators named."""

    def build(profile):
        given = inputs()
        graph_module = mark_quantised(torch.export.export(Lambda(forward), given).module())
        for node in graph_module.graph.nodes:
            if any(name in str(node.target) for name in unmarked):
                node.meta.pop("custom", None)
        return graph_module, given

    return build


S1 = (
    *(
        island(kind, "relu", join)
        for kind in ("conv2d", "depthwise", "grouped", "conv1d", "conv3d", "transposed", "linear")
        for join in ("cat", "stack", "where")
    ),
    island("linear", "hardtanh06", "cat"),
    island("grouped", "hardtanh06", "cat"),
)

OTHERS = (
    SilentBug("S2", "bilinear-by-1.5-of-5x5",
        quantised(
            lambda m, x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
            lambda: (torch.randn(1, 4, 5, 5, generator=torch.Generator().manual_seed(0)),),
        ),
        ("aten::upsample_bilinear2d",)),
    SilentBug("S17", "range-of-127",
        quantised(lambda m, x: F.relu(m.conv_b(F.relu(m.conv(x)))), narrow=True), ("aten::convolution",)),
    SilentBug("S5", "cat-of-two-domains",
        handmade(lambda m, x: qdq(torch.cat((qdq(x, 0.01, 3), qdq(x * 0.5, 0.004, 30)), 1), 0.02, 5)), ("aten::cat",)),
    SilentBug("S6", "permute-to-another-domain",
        handmade(lambda m, x: qdq(qdq(x, 0.01, 3).permute(0, 2, 3, 1), 0.02, 5)), ("aten::permute_copy",)),
    SilentBug("S6", "cat-to-another-domain",
        handmade(lambda m, x: qdq(torch.cat((qdq(x, 0.01, 3), qdq(x * 0.5, 0.01, 3)), 1), 0.02, 5)), ("aten::cat",)),
    SilentBug("S7", "two-quantisers-of-a-relu",
        handmade(lambda m, x: (lambda r: (qdq(r, 0.01, -128), qdq(r, 0.02, 5)))(F.relu(qdq(x, 0.01, 3)))),
        ("aten::relu",)),
    SilentBug("S8", "where-of-codes-and-floats",
        handmade(
            lambda m, x, y: torch.where(x > 0, qdq(x, 0.01, 3), y), lambda: (*image(), *image(seed=1)), ("gt",)
        ),
        ("aten::where",), profiles=(MIXED,)),
    SilentBug("S21", "float-mean-of-codes",
        handmade(lambda m, x: qdq(qdq(x, 0.01, 3).mean((2, 3), keepdim=True), 0.0005, 0), unmarked=("mean",)),
        ("aten::mean",), profiles=(MIXED,)),
    SilentBug("S12", "index-put-repeated",
        quantised(
            lambda m, x, y: torch.index_put(x, (torch.tensor([0, 0, 1]),), y),
            lambda: (torch.randn(4, 8), torch.randn(3, 8)),
        ),
        ("aten::index_put",)),
)  # fmt: skip


SILENT_BUGS = S1 + OTHERS
