"""The yardstick: each operator of the exported float graph between quantisers, and float inside.

Operators are those that ``torch.export`` gives: softmax, layer_norm or scaled_dot_product_attention is one. Observers
and ranges are those of the stock quantiser's default config. An operator that only moves values has no quantiser of its
own, nor has a convolution or linear layer before a batch norm or an activation that it is fused with. Infinite values
pass unchanged; biases, and the weights of norms, stay float.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._pytree import tree_map_only

from benchmarks.quality.subjects import Sample
from safe_arm.acceleration import histogram_search

#: Operators whose results are values of their first input; names without overloads.
_MOVES = frozenset((
    "alias", "amax", "amin", "as_strided", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to", "chunk",
    "clone", "contiguous", "detach", "detach_", "diagonal", "dropout", "dsplit", "embedding", "expand", "expand_as",
    "feature_dropout", "flatten", "flip", "fliplr", "flipud", "gather", "hsplit", "index", "index_select",
    "lift_fresh_copy",
    "masked_select", "max", "max_pool1d", "max_pool2d", "max_pool3d", "min", "moveaxis", "movedim", "narrow",
    "permute", "pixel_shuffle", "pixel_unshuffle", "repeat", "repeat_interleave", "reshape", "reshape_as", "roll",
    "rot90", "select", "slice", "split", "split_with_sizes", "squeeze", "swapaxes", "swapdims", "t", "take",
    "tensor_split", "tile", "to", "transpose", "tril", "triu", "unbind", "unflatten", "unfold", "unsqueeze",
    "upsample_nearest1d", "upsample_nearest2d", "view", "view_as", "vsplit", "_to_copy",
))  # fmt: skip
_WEIGHTED = frozenset(
    ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "linear")
)
_NORMS = frozenset(("batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"))
_FUSED = frozenset(("batch_norm", "hardtanh", "hardtanh_", "relu", "relu6", "relu6_", "relu_"))


class Ideal(Interpreter):
    """Runs a float graph; observes the borders of its operators first, and quantises them then.

    Attributes:
        observers: those of each value, by the node's name and the position among its results.
        quantises: the borders are quantised, and nothing is observed any more.
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.config = get_symmetric_quantization_config()
        self.observers: dict[tuple[str, int], Any] = {}
        self.qparams: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}
        self.quantises = False
        self.constants = _constants(module)

    def calibrate(self, calibration: Sequence[Sample]) -> None:
        """Observe all borders on some samples."""
        for sample in calibration:
            self.run(*_copies(sample))
        for place, observer in self.observers.items():
            with histogram_search.on_floats(observer):
                self.qparams[place] = observer.calculate_qparams()
        self.quantises = True

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n.op == "output" or not self._is_border(n):
            return result
        position = -1

        def bordered(value: Tensor) -> Tensor:
            nonlocal position
            position += 1
            return self._bordered((n.name, position), n, value)

        return tree_map_only(Tensor, bordered, result)

    def _is_border(self, node: Node) -> bool:
        users = list(node.users)
        if node.op == "get_attr":
            return not _stays_float(node)
        if node in self.constants:
            return any(user not in self.constants for user in users)
        name = _name(node)
        if name in _MOVES or node.target is getitem:
            return False
        fused = name in _WEIGHTED or name == "batch_norm"
        return not (fused and len(users) == 1 and _name(users[0]) in _FUSED)

    def _bordered(self, place: tuple[str, int], node: Node, value: Tensor) -> Tensor:
        if not value.is_floating_point() or not value.numel():
            return value
        if not self.quantises:
            if place not in self.observers:
                self.observers[place] = self._observer(node)
            finite = value if _is_weight(node) else value[value.isfinite()]
            if finite.numel():
                self.observers[place](finite.detach())
            return value
        if place not in self.qparams:
            return value
        rounded = self._rounded(self.observers[place], *self.qparams[place], value)
        if _writes(node):
            value.copy_(rounded)
            return value
        return rounded

    def _observer(self, node: Node) -> Any:
        spec: Any = self.config.output_activation
        options: dict[str, Any] = {"qscheme": torch.per_tensor_affine}
        if _is_weight(node):
            spec = self.config.weight
            options = {"qscheme": spec.qscheme, "ch_axis": _channels(node)}
        make = spec.observer_or_fake_quant_ctr
        return make(dtype=spec.dtype, quant_min=spec.quant_min, quant_max=spec.quant_max, **options)

    def _rounded(self, observer: Any, scale: Tensor, zero_point: Tensor, value: Tensor) -> Tensor:
        low, high = observer.quant_min, observer.quant_max
        if scale.numel() > 1 or hasattr(observer, "ch_axis"):
            axis = observer.ch_axis
            return torch.fake_quantize_per_channel_affine(value, scale, zero_point.int(), axis, low, high)
        rounded = torch.fake_quantize_per_tensor_affine(value.float(), float(scale), int(zero_point), low, high)
        return torch.where(value.isfinite(), rounded.to(value.dtype), value)


def ideal(module: GraphModule, calibration: Sequence[Sample]) -> Callable[..., Any]:
    """Return the net with ideal quantisation, calibrated on some samples."""
    interpreter = Ideal(module)
    interpreter.calibrate(calibration)
    return interpreter.run


def _name(node: Node) -> str:
    """Return the name of an operator without namespace and overload; that of a maximum of two says so."""
    name, _, overload = str(node.target).removeprefix("aten.").partition(".")
    if overload == "other":
        return f"{name} of two"
    return name.removesuffix("_copy")


def _constants(module: GraphModule) -> set[Node]:
    """Return the nodes that depend on no input."""
    constants: set[Node] = set()
    for node in module.graph.nodes:
        if node.op == "get_attr" or (node.op == "call_function" and constants.issuperset(node.all_input_nodes)):
            constants.add(node)
    return constants


def _readers(node: Node) -> list[tuple[str, int]]:
    """Return who reads a value: the name of each operator, and the position of the argument."""
    readers = []
    for user in node.users:
        for position, argument in enumerate(user.args):
            if argument is node:
                readers.append((_name(user), position))
    return readers


def _is_weight(node: Node) -> bool:
    return node.op == "get_attr" and any(name in _WEIGHTED and at == 1 for name, at in _readers(node))


def _stays_float(node: Node) -> bool:
    return any(name in _NORMS or (name in _WEIGHTED and at == 2) for name, at in _readers(node))


def _channels(node: Node) -> int:
    return int(any("transpose" in name for name, _ in _readers(node)))


def _writes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _copies(sample: Sample) -> list[Tensor]:
    return [value.clone() for value in sample]
