"""Give a quantised program the state of the float net, not the state that calibration left behind (T28)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from safe_arm.core.attributes import attribute, set_attribute
from safe_arm.core.exceptions import attempted
from safe_arm.quantizer.graphs.operator_schemas import written_buffers


@contextmanager
def state_at_rest(model: GraphModule) -> Iterator[list[GraphModule]]:
    """Give the state of a float graph back to the graph that it is quantised to inside of the block.

    Calibration calls the graph, and each call writes into its buffers. What is no state, such as the statistics that a
    batch norm learns in training, stays as it was learnt: state is what the graph itself writes.

    Args:
        model: the float graph, not yet called.

    Yields:
        A list; the quantised graphs put there have their state set when the block ends.
    """
    before = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    quantised: list[GraphModule] = []
    yield quantised
    with torch.no_grad():
        for graph_module in quantised:
            for name in written_buffers(graph_module, learns=False):
                if name in before:
                    attribute(graph_module, name).copy_(before[name])


class StateLeft:
    """The state of a float net, and what the last call of the prepared graph left of it.

    Between ``prepare_pt2e`` and ``convert_pt2e`` the script calls the graph itself, and may write into its buffers.

    Args:
        rest: the state that the net was exported with, by name.
    """

    def __init__(self, rest: Mapping[str, Tensor]) -> None:
        self._rest = dict(rest)
        self._left: dict[str, Tensor] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> StateLeft:
        return self

    def watch(self, prepared: GraphModule) -> None:
        """Take note of the state behind each call of a graph; copies of it are watched as well."""
        if self._rest:
            prepared.register_forward_hook(self)

    def __call__(self, module: GraphModule, args: object, outputs: object) -> None:
        """Take note of the state behind a call."""
        for name in self._rest:
            value = attempted(attribute, module, name)
            if isinstance(value, Tensor):
                self._left[name] = value.detach().clone()

    def give_back(self, converted: GraphModule) -> None:
        """Give a converted graph state of its own at rest, but for what the script has written since the last call."""
        for name in written_buffers(converted, learns=False):
            left = self._left.get(name)
            if left is not None and torch.equal(attribute(converted, name), left):
                set_attribute(converted, name, self._rest[name].clone())
