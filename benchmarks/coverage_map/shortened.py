"""Shorter versions of nets whose depth their libraries fix."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn as nn
from torch import Tensor

from benchmarks.nets import Net
from benchmarks.proof_nets import seeded

#: The largest number of parameters of a net of the map.
MOST_PARAMETERS = 20_000_000


class TooLarge(Exception):  # noqa: N818
    """A net has more parameters than the map takes."""


def shortened(net: nn.Module, most: int) -> nn.Module:
    """Return a net of which at most so many blocks with the same parameters follow each other; the net is changed."""
    for module in list(net.modules()):
        if type(module) not in (nn.Sequential, nn.ModuleList):
            continue
        blocks = list(module.named_children())
        kept = _without_repetitions(blocks, most)
        if len(kept) == len(blocks):
            continue
        for name, _ in blocks:
            del module._modules[name]
        for number, (name, block) in enumerate(kept):
            is_numbered = blocks[0][0] == "0"
            module._modules[str(number) if is_numbered else name] = block
    return net


def _without_repetitions(blocks: list[tuple[str, nn.Module]], most: int) -> list[tuple[str, nn.Module]]:
    kept: list[tuple[str, nn.Module]] = []
    before: Any = None
    repeated = 0
    for name, block in blocks:
        signature = _signature(block)
        repeated = repeated + 1 if signature and signature == before else 1
        before = signature
        if not signature or repeated <= most:
            kept.append((name, block))
    return kept


def _signature(block: nn.Module) -> tuple[Any, ...]:
    """Return what tells a block from another; nothing for a layer without parameters."""
    parameters = tuple((name, tuple(value.shape)) for name, value in block.named_parameters())
    if not parameters:
        return ()
    return type(block), parameters


def small(make: Callable[[], nn.Module], *shapes: Iterable[int], most: int = 1) -> Net:
    """Return a seeded net on the first of some input shapes that it runs on, shortened if it runs then.

    Args:
        make: gives the net with random weights.
        shapes: of its one input, in the order in which they are tried.
        most: how many equal blocks may follow each other.
    """
    first = Exception("no shape")
    torch.manual_seed(0)
    whole = make().eval()
    for shape in shapes:
        example = torch.randn(*shape)
        for net in (shortened(copy.deepcopy(whole), most), whole):
            try:
                _run(net, example)
            except Exception as error:
                first = error
                continue
            return _seeded(net, shape)
    raise first


def _run(net: nn.Module, example: Tensor) -> None:
    with torch.no_grad():
        net(example)


def _seeded(net: nn.Module, shape: Iterable[int]) -> Net:
    count = sum(parameter.numel() for parameter in net.parameters())
    if count > MOST_PARAMETERS:
        raise TooLarge(f"{count / 1e6:.0f} M parameters when shortened")
    return seeded(lambda: net, *shape)
