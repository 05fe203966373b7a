"""Whether the state of a net is carried on, from the net to its quantised graph and to the lowered program."""

from __future__ import annotations

import copy

import torch
from lowering import output_steps
from stepping import called
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tests.fuzz.building import Sample, nets

#: Values that may be apart of an output, and how far, in parts of its largest: two steps of 8-bit numbers, of two
#: calls, behind other operators. A state that is lost is of the size of the output.
SHARE, FAR = 1 / 8, 0.2


def state_of(net: nn.Module, steps: list[Sample]) -> set[str]:
    """The names of the buffers that a net writes into."""
    stepped = copy.deepcopy(net)
    with torch.no_grad():
        for step in steps:
            stepped(*step)
    before, after = dict(net.named_buffers()), dict(stepped.named_buffers())
    return {name for name, value in before.items() if not torch.equal(value, after[name])}


def lost_state(made, limit: int) -> str:
    """Say where a later call is off though the first is not; empty if nowhere.

    Args:
        made: a lowered case.
        limit: codes that an output of the lowered program may be off.
    """
    learns = made.case.config.numbers != "a8w4"  # Its moving averages learn next to nothing of a second call.
    steps = made.calibration  # Others may be clipped, as what is summed or counted further is.
    for name, net in nets(made.case).items():
        if not state_of(net, steps):
            continue
        graph, program = copy.deepcopy(made.graphs[name]), copy.deepcopy(made.manager.exported_program(name))
        begin = dict(net.named_buffers())
        for buffer_name, buffer in graph.named_buffers():
            if buffer_name in begin and buffer.dtype == begin[buffer_name].dtype:
                buffer.copy_(begin[buffer_name])
        for number, step in enumerate(steps):
            with torch.no_grad():
                wanted, quantised = tree_leaves(net(*step)), tree_leaves(graph(*step))
            ours = called(program, step)
            off = [
                f"{name}: call {number} of {what} is off"
                for what, far in (
                    ("the quantised graph", learns and any(map(_far, wanted, quantised))),
                    ("the lowered program", any(map(_codes_apart(limit), ours, quantised, output_steps(graph)))),
                )
                if far
            ]
            if off and number:
                return off[0]
            if off:
                break  # Numbers that do not fit, or what is judged anyway.
    return ""


def _far(wanted: Tensor, got: Tensor) -> bool:
    if wanted.shape != got.shape or not wanted.numel() or not bool(wanted.isfinite().all()):
        return False
    wanted, got = wanted.double(), got.double()
    return bool(((wanted - got).abs() > FAR * wanted.abs().max().clamp(min=0.1)).double().mean() > SHARE)


def _codes_apart(limit: int):
    def apart(ours: Tensor, wanted: Tensor, step: float) -> bool:
        if not wanted.numel() or not bool(wanted.isfinite().all()):
            return False
        ours, wanted = ours.double(), wanted.double()
        unit = limit * step if step != 1.0 else 1e-4 * wanted.abs().max().clamp(min=1e-3)
        return bool((ours - wanted).abs().max() > unit)

    return apart
