"""LSTMs whose state is projected to fewer values; stock takes layers without a projection alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from safe_arm.quantizer.spellings.spelled_cells import lstm_step

_ATEN = torch.ops.aten
#: State and memory of one layer.
_States = tuple[Tensor, Tensor]


def _projected_lstm(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    is_training: bool,
    is_bidirectional: bool,
    is_batch_first: bool,
) -> list[Tensor] | None:
    """Return the values, states and memories of an LSTM, step by step; None for one that drops or projects nothing."""
    first_states, first_memories = states
    is_projected = first_states.shape[-1] != first_memories.shape[-1]
    dim = 1 if is_batch_first else 0
    if not is_projected or (dropout and is_training):
        return None
    if not isinstance(x.shape[dim], int):
        return None
    directions = 2 if is_bidirectional else 1
    per_layer = len(weights) // (layers * directions)
    last: list[_States] = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            own = weights[place * per_layer : (place + 1) * per_layer]
            first = first_states[place], first_memories[place]
            output, of_last = _in_one_direction(x, first, own, dim, bool(direction))
            outputs.append(output)
            last.append(of_last)
        x = torch.cat(outputs, -1) if is_bidirectional else outputs[0]
    last_states, last_memories = zip(*last, strict=True)
    return [x, torch.stack(last_states), torch.stack(last_memories)]


def _in_one_direction(
    x: Tensor,
    states: _States,
    weights: Sequence[Tensor],
    dim: int,
    is_reversed: bool,
) -> tuple[Tensor, _States]:
    """Return the values of one layer in one direction, and its last state and memory."""
    *of_gates, projection = weights
    biases: list[Tensor | None] = [*of_gates[2:]] or [None, None]
    state, memory = states
    steps = range(x.shape[dim])
    order = reversed(steps) if is_reversed else steps
    outputs = {}
    for step in order:
        part = x.select(dim, step)
        shown, memory = lstm_step(part, [state, memory], *of_gates[:2], *biases)
        state = F.linear(shown, projection)
        outputs[step] = state
    values = torch.stack([outputs[step] for step in steps], dim)
    return values, (state, memory)


PROJECTED: dict[Any, Callable[..., Any]] = {_ATEN.lstm.input: _projected_lstm}
