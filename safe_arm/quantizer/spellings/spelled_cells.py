"""Single steps of recurrent layers; stock takes whole layers, and of the steps only one of an LSTM.

Each takes the arguments of the operator in the order of its schema.

A step whose state is zeros computes with no weights of the state, but with its bias. What is computed of both would be
folded into a constant before training begins: such a step adds the bias itself, whose gradient is that of all steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Node

from safe_arm.quantizer.graphs.constant_values import filler_of
from safe_arm.quantizer.graphs.graph_edits import Writer

_ATEN = torch.ops.aten


def _gru(x: Tensor, state: Tensor, *weights: Any, adds_bias: bool = False) -> Tensor:
    """Return what stock writes for each step of a whole layer."""
    new, old = _layers(x, state, *weights, adds_bias=adds_bias)
    new_reset, new_update, new_content = _parts(new, 3)
    if old is weights[-1]:
        reset, update, total_content = _parts(new + old, 3)
        # A part of the bias would be folded.
        old_content = total_content - new_content
    else:
        old_reset, old_update, old_content = _parts(old, 3)
        reset = new_reset + old_reset
        update = new_update + old_update
    reset = reset.sigmoid()
    update = update.sigmoid()
    content = (new_content + reset * old_content).tanh()
    kept = update * (state - content)
    return content + kept


def _parts(gates: Tensor, count: int) -> list[Tensor]:
    size = gates.shape[-1] // count
    parts = []
    for start in range(0, count * size, size):
        parts.append(_ATEN.slice(gates, -1, start, start + size))
    return parts


def _layers(
    x: Tensor,
    state: Tensor,
    weight: Tensor,
    state_weight: Tensor,
    bias: Tensor | None,
    state_bias: Tensor | None,
    *,
    adds_bias: bool,
) -> tuple[Tensor, Tensor]:
    """Return a layer of the input and one of the state, or its bias."""
    new = F.linear(x, weight, bias)
    if adds_bias and state_bias is not None:
        return new, state_bias
    return new, F.linear(state, state_weight, state_bias)


def lstm_step(
    x: Tensor, states: list[Tensor], *weights: Any, adds_bias: bool = False
) -> list[Tensor]:
    """Return the states behind a step; stock raises on a step that reads the states of another."""
    state, memory = states
    new, old = _layers(x, state, *weights, adds_bias=adds_bias)
    learn, keep, content, show = _parts(new + old, 4)
    learn = learn.sigmoid()
    keep = keep.sigmoid()
    content = content.tanh()
    show = show.sigmoid()
    kept = keep * memory
    memory = kept + learn * content
    return [show * memory.tanh(), memory]


def _plain(activation: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return the spelling of a step that sums two layers, and ends in an activation."""

    def spelled(
        x: Tensor, state: Tensor, *weights: Any, adds_bias: bool = False
    ) -> Tensor:
        new, old = _layers(x, state, *weights, adds_bias=adds_bias)
        return activation(new + old)

    return spelled


def _trained(cell: Callable[..., Any]) -> Callable[..., Any]:
    """Return the spelling of a step of a net that is trained."""

    def spelled(
        write: Writer, x: Node, state: Node | list[Node], *weights: Node | None
    ) -> Any:
        first = state if isinstance(state, Node) else state[0]
        how = {"adds_bias": _is_zeros(first)}
        return write.compute(cell, (x, state, *weights), how)

    return spelled


def _is_zeros(state: Node) -> bool:
    """Return whether a state is made of zeros; a buffer of zeros may have others later."""
    return state.target is _ATEN.zeros.default or filler_of(state) == 0


CELLS: dict[Any, Callable[..., Any]] = {
    _ATEN.gru_cell.default: _gru,
    _ATEN.lstm_cell.default: lstm_step,
    _ATEN.rnn_tanh_cell.default: _plain(torch.tanh),
    _ATEN.rnn_relu_cell.default: _plain(torch.relu),
}
#: Spellings that look at the nodes of the graph.
TRAINED_CELLS: dict[Any, Callable[..., Any]] = {}
for _cell, _function in CELLS.items():
    TRAINED_CELLS[_cell] = _trained(_function)
