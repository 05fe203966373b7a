"""Faults on the way from the float net to the quantised graph, each planted alone into upstream's real code.

A fault changes what the net computes and raises nothing, as those of known issues T16 to T31 do.
"""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from small import Lambda
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult
from torchao.quantization.pt2e import quantize_pt2e, utils

ATEN = torch.ops.aten
Change = Callable[[GraphModule], Any]


@dataclass(frozen=True)
class Fault:
    """A fault by its name, a net in which it shows, and what it does to a graph."""

    id: str
    net: nn.Module
    change: Change


def found(module: GraphModule, *targets: object) -> Node:
    """The last operator of some kinds."""
    return [node for node in module.graph.nodes if node.target in targets][-1]


def edited(targets: tuple[object, ...], edit: Callable[[Node], Any]) -> Change:
    """Edit the last operator of some kinds."""
    return lambda module: edit(found(module, *targets))


def bypass(*targets: object) -> Change:
    """Let an operator give its first input."""
    return edited(targets, lambda node: node.replace_all_uses_with(node.args[0]))


def swap(*targets: object, places: tuple[int, int] = (0, 1)) -> Change:
    """Exchange two arguments."""

    def edit(node: Node) -> None:
        args = list(node.args)
        one, other = places
        args[one], args[other] = args[other], args[one]
        node.args = tuple(args)

    return edited(targets, edit)


def put(place: int, value: object, *targets: object) -> Change:
    """Give an operator another argument."""
    return edited(targets, lambda node: node.update_arg(place, value))


def reverse(*targets: object) -> Change:
    """Reverse the list that an operator, or the graph's output, takes first."""
    return edited(targets, lambda node: node.update_arg(0, tuple(node.args[0])[::-1]))


def erase(*targets: object) -> Change:
    """Take an operator away that nobody reads."""
    return edited(targets, lambda node: node.graph.erase_node(node))


def narrow(dtype: torch.dtype) -> Change:
    """Let the last operator's value go through a narrower dtype."""

    def change(module: GraphModule) -> None:
        output = module.graph.output_node()
        value = output.all_input_nodes[0]
        with module.graph.inserting_before(output):
            half = module.graph.call_function(ATEN.to.dtype, (value, dtype))
            back = module.graph.call_function(ATEN.to.dtype, (half, value.meta["val"].dtype))
        half.meta, back.meta = dict(value.meta), dict(value.meta)
        half.meta["val"] = value.meta["val"].to(dtype)
        output.replace_input_with(value, back)

    return change


class Counter(nn.Module):
    """A net whose state counts."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(1, 4, 8, 8))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 0.5


CONV = (ATEN.conv2d.default, ATEN.convolution.default)
DQ = torch.ops.quantized_decomposed.dequantize_per_tensor.default


def _amax(module: GraphModule) -> None:
    node = found(module, ATEN.argmax.default)
    with module.graph.inserting_before(node):
        largest = module.graph.call_function(ATEN.amax.default, (node.args[0], [1]))
        index = module.graph.call_function(ATEN.to.dtype, (largest, torch.int64))
    largest.meta, index.meta = dict(node.meta), dict(node.meta)
    largest.meta["val"] = node.meta["val"].to(torch.float32)
    node.replace_all_uses_with(index)


def _state_lost(module: GraphModule) -> None:
    """Write what a state was; among our passes it comes from outside and is an output."""
    inputs = [node for node in module.graph.find_nodes(op="placeholder") if "state" in node.name]
    if inputs:
        output = module.graph.output_node()
        output.args = ((inputs[0], *output.args[0][1:]),)
    else:
        node = found(module, ATEN.add_.Tensor, ATEN.add.Tensor)
        node.target = ATEN.add.Tensor
        for write in module.graph.find_nodes(op="call_function", target=ATEN.copy_.default):
            module.graph.erase_node(write)


def _scale_doubled(module: GraphModule) -> None:
    node = found(module, DQ)
    node.args = (node.args[0], node.args[1] * 2, *node.args[2:])


def _weights_negated(module: GraphModule) -> None:
    node = found(module, *CONV)
    with module.graph.inserting_before(node):
        negated = module.graph.call_function(ATEN.neg.default, (node.args[1],))
    node.args = (node.args[0], negated, *node.args[2:])


def fault(name: str, rule: Callable[..., Any], change: Change) -> Fault:
    """A fault in a net of one line."""
    return Fault(name, Lambda(rule), change)


IN_BOTH = (
    fault("relu-lost", lambda m, x: torch.relu(m.conv(x)), bypass(ATEN.relu.default)),
    fault("bias-dropped", lambda m, x: m.conv(x), put(2, None, *CONV)),
    fault("operands-swapped", lambda m, x: m.conv(x) - x, swap(ATEN.sub.Tensor)),
    fault("outputs-permuted", lambda m, x: (torch.sigmoid(x), torch.tanh(x)), reverse("output")),
    fault("parts-swapped", lambda m, x: torch.cat((m.conv(x), x), 1), reverse(ATEN.cat.default)),
)
IN_TRANSFORMS = (
    *IN_BOTH,
    fault("factor-lost", lambda m, x: torch.sigmoid(x) * 0.7, bypass(ATEN.mul.Tensor)),
    fault("branches-swapped", lambda m, x: torch.where(x > 0, x, x * 0.5), swap(ATEN.where.self, places=(1, 2))),
    fault("value-for-index", lambda m, x: m.conv(x).argmax(1), _amax),
    Fault("state-not-written", Counter(), _state_lost),
    fault("dtype-narrowed", lambda m, x: m.conv(x), narrow(torch.float16)),
    fault("dims-permuted", lambda m, x: m.conv(x).permute(0, 1, 3, 2), put(1, [0, 1, 2, 3], ATEN.permute.default)),
    fault("part-shifted", lambda m, x: torch.relu(x[:, 1:3]), put(2, 0, ATEN.slice.Tensor)),
    fault("bound-moved", lambda m, x: m.conv(x).clamp(-0.2, 0.3), put(2, 0.4, ATEN.clamp.default)),
    fault("stride-lost", lambda m, x: F.max_pool2d(x, 3, 2, 1), put(2, [1, 1], ATEN.max_pool2d.default)),
    fault("padding-moved", lambda m, x: F.pad(m.conv(x), (1, 0)), put(1, [0, 1], ATEN.pad.default)),
    fault("sign-lost", lambda m, x: -m.conv(x), bypass(ATEN.neg.default)),
)
IN_CONVERSION = (
    *IN_BOTH,
    fault("stride-changed", lambda m, x: m.conv(x), put(3, [2, 2], *CONV)),
    fault("scale-doubled", lambda m, x: m.conv(x), _scale_doubled),
    fault("weights-negated", lambda m, x: m.conv(x), _weights_negated),
    Fault("state-not-written", Counter(), erase(ATEN.copy_.default)),
)
#: What the fold of a batch norm makes of weights and bias.
IN_FOLDING = {
    "factor-lost": lambda weight, bias: (weight * 1.1, bias),
    "bias-dropped": lambda weight, bias: (weight, torch.zeros_like(bias)),
    "channels-swapped": lambda weight, bias: (weight.flip(0), bias),
}


@contextmanager
def in_transforms(monkeypatch, change: Change):
    """Let one of stock's passes do something else, wherever the graph has what it does that to."""
    from executorch.backends.arm._passes.deduplicate_get_attr_pass import DeduplicateGetAttrPass  # not in 1.2

    def call(self, graph_module: GraphModule) -> PassResult:
        try:
            change(graph_module)
        except IndexError:
            return PassResult(graph_module, False)
        graph_module.recompile()
        return PassResult(graph_module, True)

    with monkeypatch.context() as patch:
        patch.setattr(DeduplicateGetAttrPass, "call", call)
        yield DeduplicateGetAttrPass.__name__


@contextmanager
def in_conversion(monkeypatch, change: Change):
    """Let conversion do something else."""

    def fold(model: GraphModule) -> GraphModule:
        change(model)
        model.graph.eliminate_dead_code()
        model.recompile()
        return model

    with monkeypatch.context() as patch:
        patch.setattr(quantize_pt2e, "_fold_conv_bn_qat", fold)
        yield


@contextmanager
def in_folding(monkeypatch, change: Callable[[Any, Any], tuple[Any, Any]]):
    """Let the fold of a batch norm give other weights."""
    stock = utils.fuse_conv_bn_weights

    def fused(*args: Any, **kwargs: Any) -> tuple[nn.Parameter, nn.Parameter]:
        with torch.no_grad():
            weight, bias = change(*stock(*args, **kwargs))
        return nn.Parameter(weight), nn.Parameter(bias)

    with monkeypatch.context() as patch:
        patch.setattr(utils, "fuse_conv_bn_weights", fused)
        yield
