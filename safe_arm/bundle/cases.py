"""Inputs and expected outputs of a program: the proof's inputs, run on the program that ships."""

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
from safe_arm.core.differences import absolute_difference, largest
from safe_arm.core.errors import SafeArmError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.verification.concrete_sizes import is_dynamic, static_at, tried_sizes
from safe_arm.verification.distance import code_step
from safe_arm.verification.double import evaluate_in_double
from safe_arm.verification.rounding import FLOAT
from safe_arm.verification.stimuli import STIMULI, Stimulus, stimuli

#: Maximum cost of running all cases of a method, in multiply-accumulates: about 20 s in the reference model.
MACS = 3_000_000_000
EXACT = "integers are exact"
CODE = "half a code: less than any code that is off, more than its float is rounded"
REAL = "what float32 may round, of the largest expected value"
MEASURED = (
    "twice what the program is from the graph in double: more than one operator rounds"
)
UNPROVEN = "a code of the quantised graph's output: the program could not be run here"
#: The two sources of expected outputs.
BY_PROGRAM = "the program itself: Arm delegates in the TOSA reference model, the rest in ExecuTorch's runtime"
BY_GRAPH = "the quantised graph in double"


@dataclass(frozen=True)
class Case:
    """One set of inputs, and the outputs that are expected of it.

    Attributes:
        stimulus: the inputs.
        outputs: the expected outputs.
    """

    stimulus: Stimulus
    outputs: tuple[Tensor, ...]

    @property
    def seed(self) -> int | None:
        """The seed of random inputs; None where nothing is random."""
        name = self.stimulus.name
        return zlib.crc32(name.encode()) if name.startswith("random") else None


@dataclass(frozen=True)
class MethodCases:
    """The cases of one method.

    Attributes:
        cases: the inputs and expected outputs.
        bounds: the tolerance of each output on the device.
        computed_by: the source of the expected outputs.
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
    chosen = _stimuli(program, samples, macs)
    reference = [_quantised(program, stimulus) for stimulus in chosen]
    if isinstance(cut, str):
        evaluated = [outputs for outputs in reference if outputs is not None]
        if len(evaluated) < len(chosen):
            raise SafeArmError(
                f"the program cannot be run here ({cut}), nor can its quantised graph"
            )
        expected = evaluated
        computed_by = BY_GRAPH
    else:
        computed_by = BY_PROGRAM
        expected = [tuple(run_method(cut, each.inputs, run_call)) for each in chosen]
    cases = tuple(map(Case, chosen, expected))
    bounds = []
    for number, node in enumerate(_outputs(program)):
        ours = [outputs[number] for outputs in expected]
        theirs = [None if outputs is None else outputs[number] for outputs in reference]
        bounds.append(_bound(node, ours, theirs, computed_by))
    return MethodCases(cases, tuple(bounds), computed_by)


def _stimuli(
    program: ExportedProgram,
    samples: Sequence[Sequence[Tensor]],
    macs: int,
) -> list[Stimulus]:
    """Return a user's samples, then the inputs that the program's delegates are proven on."""
    chosen = []
    for number, sample in enumerate(samples):
        chosen.append(Stimulus(f"sample {number}", tuple(sample)))
    state = {**program.constants, **program.state_dict}
    if not is_dynamic(program):
        count = min(STIMULI, max(1, MACS // max(1, macs)))
        return [*chosen, *stimuli(program, count, state)]
    for sizes in tried_sizes(program):
        chosen += stimuli(static_at(program, sizes), 1, state)
    return chosen


def _outputs(program: ExportedProgram) -> list[Node]:
    """Return the nodes that a program returns to its user, without the buffers that it changes."""
    names = program.graph_signature.user_outputs
    by_name = {node.name: node for node in program.graph.nodes}
    return [by_name[name] for name in names if isinstance(name, str)]


def _quantised(
    program: ExportedProgram, stimulus: Stimulus
) -> tuple[Tensor, ...] | None:
    """Return the quantised graph's outputs, computed in double, in their own dtypes; None if it cannot be run."""
    values = attempted(_evaluated, program, stimulus.inputs)
    if isinstance(values, Caught):
        return None
    tensors = [value for value in tree_leaves(values) if isinstance(value, Tensor)]
    nodes = _outputs(program)
    if len(tensors) != len(nodes):
        return None
    for number, node in enumerate(nodes):
        tensors[number] = tensors[number].to(node.meta["val"].dtype)
    return tuple(tensors)


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
    real = outputs[0].is_floating_point()
    step = code_step(node) if real else 1.0
    off = _off(outputs, reference, step)
    rounding = FLOAT * max(map(largest, outputs))
    if computed_by == BY_GRAPH:
        return Bound((step or rounding) * 1.5, UNPROVEN, step, off)
    if not real:
        return Bound(0.0, EXACT, step, off)
    if step is not None:
        return Bound(step / 2, CODE, step, off)
    if off is not None and 2 * off > rounding:
        return Bound(2 * off, MEASURED, None, off)
    return Bound(rounding, REAL, None, off)


def _off(
    outputs: Sequence[Tensor],
    reference: Sequence[Tensor | None],
    step: float | None,
) -> float | None:
    """Return how far outputs are from the reference, in codes if there is a step; None if a reference is missing."""
    worst = 0.0
    for ours, theirs in zip(outputs, reference, strict=True):
        if theirs is None:
            return None
        differences = absolute_difference(ours, theirs)
        finite = differences[differences.isfinite()]
        if finite.numel():
            worst = max(worst, float(finite.max()))
    return round(worst / step, 3) if step else worst
