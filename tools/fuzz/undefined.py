"""Whether a net makes an integer of what has none: each machine makes another of NaN, and TOSA forbids it."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from safe_arm.core.island import QUANTIZE, op_name
from tools.fuzz.building import Sample


def undefined(graph_module: GraphModule, tried: Iterable[Sample]) -> bool:
    """Whether a NaN is quantised, or what is not finite cast to integers; branches are not looked into."""
    watch = _Watch(copy.deepcopy(graph_module))  # It may write into its buffers.
    with torch.no_grad():
        for sample in tried:
            watch.run(*sample)
    return watch.found


class _Watch(Interpreter):
    found = False

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        name = op_name(n)
        if name in (QUANTIZE, "aten::to", "aten::_to_copy") and _is_integer(result):
            given = self.env[n.args[0]]
            bad = given.isnan() if name == QUANTIZE else ~given.isfinite()
            self.found |= given.is_floating_point() and bool(bad.any())
        return result


def _is_integer(value: object) -> bool:
    return isinstance(value, Tensor) and not value.is_floating_point() and value.dtype != torch.bool
