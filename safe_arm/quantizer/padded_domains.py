"""Padding that a maximum never takes does not widen the domain of what is padded.

"Same" padding in front of a max pool, as timm's ``MaxPool2dSame`` does it, is minus infinity. Stock pads with -256,
which widens the domain of the values: a pool of values between -4 and 4 keeps 15 dB of 46. Beyond the domain, the
padding gets its least code, which is no more than any value's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torchao.quantization.pt2e import ObserverOrFakeQuantize
from torchao.quantization.pt2e.quantizer import EdgeOrNode

from safe_arm.quantizer.graph_edits import tensor_of

_PAD = torch.ops.aten.pad.default
_CONSTANT_PAD = torch.ops.aten.constant_pad_nd.default
_UNSQUEEZE = torch.ops.aten.unsqueeze.default
_POOL = torch.ops.aten.max_pool2d.default


class PaddedObserver(torch.nn.Module):
    """Shows an observer the values that are no padding; all else that is asked of it is the observer's.

    Args:
        observer: the observer of the domain.
        padding: the number that is padded with.
    """

    def __init__(self, observer: ObserverOrFakeQuantize, padding: float) -> None:
        super().__init__()
        self.observer = observer
        self.padding = padding

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("observer"), name)

    def forward(self, x: Tensor) -> Tensor:
        """Show a value of any shape to the observer, and return it."""
        kept = x[x != self.padding]
        if kept.numel():
            self.observer(kept)
        return x


def leave_padding_out(
    observers: dict[EdgeOrNode, ObserverOrFakeQuantize],
) -> None:
    """Let no negative padding be observed that only max pools read, each window of which has a value that is none.

    Args:
        observers: the observer of each annotated place; changed in place. Fake-quantise modules are left alone.
    """
    for node in [place for place in observers if isinstance(place, Node)]:
        padding = _padding(node)
        observer = observers[node]
        if padding >= 0 or not _is_plain(observer):
            continue
        padded = _padded(node)
        if not padded or any(observers.get(each) is not observer for each in padded):
            continue
        unpadded = PaddedObserver(observer, padding)
        for each in padded:
            observers[each] = unpadded
            for reader in each.users:
                if observers.get((each, reader)) is observer:
                    observers[each, reader] = unpadded


def _is_plain(observer: ObserverOrFakeQuantize | None) -> bool:
    if observer is None or isinstance(observer, PaddedObserver):
        return False
    is_trained = hasattr(observer, "activation_post_process")
    return not is_trained and not observer.is_dynamic


def _padding(node: Node) -> float:
    """Return the number that a node pads with; 0 if it pads with none."""
    if node.target is _PAD and node.args[2:3] in ((), ("constant",)):
        number = node.args[3] if len(node.args) > 3 else 0.0
    elif node.target is _CONSTANT_PAD:
        number = node.args[2] if len(node.args) > 2 else 0.0
    else:
        return 0.0
    return float(number) if isinstance(number, (int, float)) else 0.0


def _padded(pad: Node) -> list[Node]:
    """Return a padded value, and what it is before pools read it; nothing if anything else reads it."""
    sizes: Any = pad.args[1]
    if tensor_of(pad) is None or len(sizes) > 4:
        return []
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        return []
    padded = [pad]
    for reader in pad.users:
        if reader.target is _UNSQUEEZE and reader.args[1] == -2 and len(sizes) == 2:
            padded.append(reader)
    pools = [reader for each in padded for reader in each.users if reader not in padded]
    rows, columns = (*sizes[2:4], 0, 0)[:2], sizes[:2]
    if all(_takes_values(pool, rows, columns) for pool in pools):
        return padded
    return []


def _takes_values(pool: Node, rows: Any, columns: Any) -> bool:
    """Tell whether a node is a max pool, and no window of it lies in the padding alone.

    Args:
        pool: the node.
        rows: how many rows of padding are at the top and at the bottom.
        columns: the same at the left and at the right.
    """
    if pool.target is not _POOL:
        return False
    source, result = tensor_of(pool.args[0]), tensor_of(pool)
    if source is None or result is None or not _is_static(source):
        return False
    kernel, stride, padding, dilation = _window(pool)
    for axis, (first, last) in enumerate((rows, columns)):
        values = range(first, source.shape[axis - 2] - last)
        for place in range(result.shape[axis - 2]):
            start = place * stride[axis] - padding[axis]
            end = start + kernel[axis] * dilation[axis]
            if not any(each in values for each in range(start, end, dilation[axis])):
                return False
    return True


def _is_static(value: Tensor) -> bool:
    return all(isinstance(size, int) for size in value.shape)


def _window(pool: Node) -> list[list[int]]:
    """Return the kernel, the stride, the padding and the dilation of a max pool, each by axis."""
    defaults: tuple[Any, ...] = ([], [], 0, 1)
    given = pool.args[1:5]
    sizes = [*given, *defaults[len(given) :]]
    sizes[1] = sizes[1] or sizes[0]
    return [_by_axis(each) for each in sizes]


def _by_axis(size: Any) -> list[int]:
    sizes = [size] if isinstance(size, int) else list(size)
    return sizes * 2 if len(sizes) == 1 else sizes
