"""Whether the state of a net is carried on, from the net to its quantised graph and to the lowered program."""

import copy
from collections import ChainMap
from types import SimpleNamespace

import torch
from stepping import called
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from tools.fuzz.building import Sample, nets
from tools.fuzz.judging import judged

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
    return {name for name, value in before.items() if not ((value == after[name]) | value.isnan()).all()}


def lost_state(made, limit: int) -> str:
    """Say where a later call is off though the first is not; empty if nowhere.

    Args:
        made: a lowered case.
        limit: codes that an output of the lowered program may be off.
    """
    learns = made.case.config.numbers != "a8w4"  # Its moving averages learn next to nothing of a second call.
    steps = made.calibration  # Others may be clipped, as what is summed or counted further is.
    for name, net in nets(made.case).items():
        written = state_of(net, steps)
        if not written:
            continue
        graph, exported = copy.deepcopy(made.graphs[name]), copy.deepcopy(made.programs[name])
        lowered = copy.deepcopy(made.manager.exported_program(name))
        manager = SimpleNamespace(methods={name}, exported_program=lambda _, lowered=lowered: lowered)
        states = {each: buffer for each, buffer in graph.named_buffers() if each in written}
        for each, buffer in states.items():
            buffer.copy_(net.get_buffer(each))
        for number, step in enumerate(steps):
            for program in (lowered, exported):  # What judged them before may have called their graphs.
                _held(program).update({each: buffer.clone() for each, buffer in states.items()})
            verdict = judged(manager, name, graph, exported, [step], limit, made.on_cpu).verdict if number else ""
            with torch.no_grad():
                wanted, quantised = tree_leaves(net(*step)), tree_leaves(graph(*step))
            called(lowered, step)
            if any(map(_far, wanted, quantised)):
                if number and learns:
                    return f"{name}: call {number} of the quantised graph is off"
                break  # Numbers that do not fit.
            if verdict == "wrong" and all(bool(each.isfinite().all()) for each in quantised):
                return f"{name}: call {number} of the lowered program is off"
            if any(_far(buffer, _held(lowered)[each]) for each, buffer in states.items()):
                return f"{name}: call {number} of the lowered program leaves another state"
    return ""


def _held(program: ExportedProgram) -> ChainMap[str, Tensor]:
    """What a program holds; what is new is written over the buffers that are persistent, as all here are."""
    return ChainMap(program.state_dict, program.constants)


def _far(wanted: Tensor, got: Tensor) -> bool:
    if wanted.shape != got.shape or not wanted.numel() or not bool(wanted.isfinite().all()):
        return False
    wanted, got = wanted.double(), got.double()
    return bool(((wanted - got).abs() > FAR * wanted.abs().max().clamp(min=0.1)).double().mean() > SHARE)
