"""Inputs and expected outputs of a program: what the proof's inputs give on the program that ships, run here."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from safe_arm._compat.pte import MethodCut
from safe_arm.bundle.manifest import Bound
from safe_arm.bundle.running import RunsCall, run_method
from safe_arm.core.attributes import duplicate
from safe_arm.core.errors import SafeArmError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.verification.concrete_sizes import is_dynamic, static_at, tried_sizes
from safe_arm.verification.distance import absolute_difference, code_step
from safe_arm.verification.double import evaluate_in_double
from safe_arm.verification.rounding import FLOAT, largest
from safe_arm.verification.stimuli import STIMULI, Stimulus, stimuli

#: What running all cases of a method may cost, in multiply-accumulates: about 20 s in the reference model.
MACS = 3_000_000_000
EXACT = "integers are exact"
CODE = "half a code: less than any code that is off, more than its float is rounded"
REAL = "what float32 may round, of the largest expected value"
MEASURED = (
    "twice what the program is from the graph in double: more than one operator rounds"
)
UNPROVEN = "a code of the quantised graph's output: the program could not be run here"
#: What gives expected outputs.
BY_PROGRAM = "the program itself: Arm delegates in the TOSA reference model, the rest in ExecuTorch's runtime"
BY_GRAPH = "the quantised graph in double"


@dataclass(frozen=True)
class Case:
    """One set of inputs, and what has to come of it.

    Attributes:
        stimulus: the inputs.
        outputs: the expected outputs.
    """

    stimulus: Stimulus
    outputs: tuple[Tensor, ...]

    @property
    def seed(self) -> int | None:
        """What the inputs are random by; None where nothing is."""
        return (
            zlib.crc32(self.stimulus.name.encode())
            if self.stimulus.name.startswith("random")
            else None
        )


@dataclass(frozen=True)
class MethodCases:
    """The cases of one method.

    Attributes:
        cases: the inputs and expected outputs.
        bounds: how far each output may be off on the device.
        computed_by: what gave the expected outputs.
    """

    cases: tuple[Case, ...]
    bounds: tuple[Bound, ...]
    computed_by: str


def make_cases(
    program: ExportedProgram,
    cut: MethodCut | str,
    run_call: RunsCall,
    samples: Sequence[Sequence[Tensor]] = (),
    macs: int = 0,
) -> MethodCases:
    """Run a method on the inputs that its delegates are proven on, and on samples of the user's.

    Args:
        program: the quantised program before it was lowered.
        cut: the method in the program file, or why it cannot be run here.
        run_call: runs its Arm delegates.
        samples: inputs of the method's.
        macs: multiply-accumulates of the method; of a large one fewer inputs are run.

    Raises:
        SafeArmError: it cannot be run here, nor can its quantised graph.
    """
    chosen = [
        Stimulus(f"sample {number}", tuple(sample))
        for number, sample in enumerate(samples)
    ]
    count = min(STIMULI, max(1, MACS // max(1, macs)))
    state = {**program.constants, **program.state_dict}
    if is_dynamic(program):
        chosen += [
            each
            for sizes in tried_sizes(program)
            for each in stimuli(static_at(program, sizes), 1, state)
        ]
    else:
        chosen += stimuli(program, count, state)
    reference = [_quantised(program, stimulus) for stimulus in chosen]
    if isinstance(cut, str):
        known = [each for each in reference if each is not None]
        if len(known) < len(chosen):
            raise SafeArmError(
                f"the program cannot be run here ({cut}), nor can its quantised graph"
            )
        outputs, computed_by = known, BY_GRAPH
    else:
        outputs, computed_by = (
            [tuple(run_method(cut, each.inputs, run_call)) for each in chosen],
            BY_PROGRAM,
        )
    cases = tuple(
        Case(stimulus, given) for stimulus, given in zip(chosen, outputs, strict=True)
    )
    bounds = [
        _bound(
            node,
            [case.outputs[n] for case in cases],
            [None if each is None else each[n] for each in reference],
            computed_by,
        )
        for n, node in enumerate(_outputs(program))
    ]
    return MethodCases(cases, tuple(bounds), computed_by)


def _outputs(program: ExportedProgram) -> list[Node]:
    """Return what a program gives its user, without the buffers that it changes."""
    names = [
        name for name in program.graph_signature.user_outputs if isinstance(name, str)
    ]
    nodes = {node.name: node for node in program.graph.nodes}
    return [nodes[name] for name in names]


def _quantised(
    program: ExportedProgram, stimulus: Stimulus
) -> tuple[Tensor, ...] | None:
    """Return what the quantised graph gives in double, in the dtypes of its outputs; None if it cannot be run."""
    values = attempted(_evaluated, program, stimulus.inputs)
    if isinstance(values, Caught):
        return None
    nodes = _outputs(program)
    tensors = [value for value in tree_leaves(values) if isinstance(value, Tensor)]
    if len(tensors) != len(nodes):
        return None
    return tuple(
        value.to(node.meta["val"].dtype)
        for value, node in zip(tensors, nodes, strict=True)
    )


def _evaluated(program: ExportedProgram, inputs: Sequence[Tensor]) -> object:
    module = duplicate(program.module(check_guards=False))
    evaluate_in_double(module)
    with torch.no_grad():
        return module(*inputs)


def _bound(
    node: Node,
    outputs: Sequence[Tensor],
    reference: Sequence[Tensor | None],
    computed_by: str,
) -> Bound:
    step = code_step(node) if outputs[0].is_floating_point() else 1.0
    apart = [
        _apart(ours, theirs)
        for ours, theirs in zip(outputs, reference, strict=True)
        if theirs is not None
    ]
    off = max(apart) / (step or 1.0) if len(apart) == len(outputs) else None
    off = None if off is None else round(off, 3) if step else off
    if computed_by == BY_GRAPH:
        return Bound(
            (step or FLOAT * max(map(largest, outputs))) * 1.5, UNPROVEN, step, off
        )
    if not outputs[0].is_floating_point():
        return Bound(0.0, EXACT, step, off)
    if step is not None:
        return Bound(step / 2, CODE, step, off)
    rounding = FLOAT * max(largest(output.double()) for output in outputs)
    if off is not None and 2 * off > rounding:
        return Bound(2 * off, MEASURED, None, off)
    return Bound(rounding, REAL, None, off)


def _apart(one: Tensor, other: Tensor) -> float:
    off = absolute_difference(one, other)
    return float(off[off.isfinite()].max()) if off.isfinite().any() else 0.0
