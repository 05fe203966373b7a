"""Spellings of single steps of recurrent layers; stock takes whole layers, and of the steps only one of an LSTM.

Each takes the arguments of the operator in the order of its schema.

A step whose state is zeros computes with no weights of the state, but with its bias. What is computed of both would be
folded into a constant before training begins: such a step adds the bias itself, whose gradient is that of all steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from safe_arm.quantizer.constant_values import filler_of
from safe_arm.quantizer.graph_edits import Writer

_ATEN = torch.ops.aten
_SUM = _ATEN.add.Tensor
_PRODUCT = _ATEN.mul.Tensor
_SIGMOID = _ATEN.sigmoid.default
_TANH = _ATEN.tanh.default


def _gru(
    write: Writer,
    x: Node,
    state: Node,
    weight: Node,
    state_weight: Node,
    bias: Node | None,
    state_bias: Node | None,
    *,
    is_trained: bool = False,
) -> Node:
    """Write what stock writes for each step of a whole layer."""
    new = _linear(write, x, weight, bias)
    new_reset, new_update, new_content = _parts(write, new, 3)
    if is_trained and state_bias is not None and _is_zeros(state):
        total = write(_SUM, new, state_bias)
        reset, update, total_content = _parts(write, total, 3)
        # A part of the bias would be folded.
        old_content = write(_ATEN.sub.Tensor, total_content, new_content)
    else:
        old = _linear(write, state, state_weight, state_bias)
        old_reset, old_update, old_content = _parts(write, old, 3)
        reset = write(_SUM, new_reset, old_reset)
        update = write(_SUM, new_update, old_update)
    reset = write(_SIGMOID, reset)
    update = write(_SIGMOID, update)
    old_content = write(_PRODUCT, reset, old_content)
    content = write(_SUM, new_content, old_content)
    content = write(_TANH, content)
    distance = write(_ATEN.sub.Tensor, state, content)
    kept = write(_PRODUCT, update, distance)
    return write(_SUM, content, kept)


def _linear(
    write: Writer,
    x: Node,
    weight: Node,
    bias: Node | None,
) -> Node:
    return write(_ATEN.linear.default, x, weight, bias)


def _of_state(
    write: Writer,
    state: Node,
    weight: Node,
    bias: Node | None,
    is_trained: bool,
) -> Node:
    """Return what a step adds for its state."""
    if is_trained and bias is not None and _is_zeros(state):
        return bias
    return _linear(write, state, weight, bias)


def _is_zeros(state: Node) -> bool:
    """Return whether a state is made of zeros; a buffer of zeros may have others later."""
    return state.target is _ATEN.zeros.default or filler_of(state) == 0


def _parts(write: Writer, gates: Node, count: int) -> list[Node]:
    sizes = gates.meta["val"].shape
    size = sizes[-1] // count
    parts = []
    for start in range(0, count * size, size):
        part = write(_ATEN.slice.Tensor, gates, -1, start, start + size)
        parts.append(part)
    return parts


def _lstm(
    write: Writer,
    x: Node,
    states: list[Node],
    weight: Node,
    state_weight: Node,
    bias: Node | None,
    state_bias: Node | None,
    *,
    is_trained: bool = False,
) -> list[Node]:
    """Write the gates over the sum of both layers; stock raises on a step that reads the states of another."""
    state, memory = states
    new = _linear(write, x, weight, bias)
    old = _of_state(write, state, state_weight, state_bias, is_trained)
    gates = write(_SUM, new, old)
    learn, keep, content, show = _parts(write, gates, 4)
    learn = write(_SIGMOID, learn)
    keep = write(_SIGMOID, keep)
    content = write(_TANH, content)
    show = write(_SIGMOID, show)
    kept = write(_PRODUCT, keep, memory)
    learned = write(_PRODUCT, learn, content)
    memory = write(_SUM, kept, learned)
    content = write(_TANH, memory)
    state = write(_PRODUCT, show, content)
    return [state, memory]


def _plain(activation: Callable[..., Any]) -> Callable[..., Node]:
    """Return the spelling of a step that sums two layers, and ends in an activation."""

    def spelled(
        write: Writer,
        x: Node,
        state: Node,
        weight: Node,
        state_weight: Node,
        bias: Node | None,
        state_bias: Node | None,
        *,
        is_trained: bool = False,
    ) -> Node:
        new = _linear(write, x, weight, bias)
        old = _of_state(write, state, state_weight, state_bias, is_trained)
        total = write(_SUM, new, old)
        return write(activation, total)

    return spelled


CELLS: dict[Any, Callable[..., Any]] = {
    _ATEN.gru_cell.default: _gru,
    _ATEN.lstm_cell.default: _lstm,
    _ATEN.rnn_tanh_cell.default: _plain(_TANH),
    _ATEN.rnn_relu_cell.default: _plain(_ATEN.relu.default),
}
#: Spellings of the steps of a net that is trained.
TRAINED_CELLS: dict[Any, Any] = {}
for _cell, _spelling in CELLS.items():
    TRAINED_CELLS[_cell] = partial(_spelling, is_trained=True)
