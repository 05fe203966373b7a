"""A whole lowered program against the quantised graph: delegates in the reference model, the rest eager."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from safe_arm._compat.loading import delegate_name
from safe_arm.core.attributes import duplicate
from safe_arm.core.errors import UsageError
from safe_arm.core.programs import user_outputs
from safe_arm.verification.culprits import find_culprits
from safe_arm.verification.delegate import Delegate, Runner, run
from safe_arm.verification.devices import device as device_of
from safe_arm.verification.distance import code_step, distance
from safe_arm.verification.double import evaluate_in_double
from safe_arm.verification.evaluation import Evaluation, evaluated
from safe_arm.verification.lowered import delegate_of, run_with
from safe_arm.verification.placing import run_tapped
from safe_arm.verification.reference_model import (
    ReferenceModelError,
    require_reference_model,
)
from safe_arm.verification.samples import finite, matching

if TYPE_CHECKING:
    from executorch.exir import EdgeProgramManager
    from executorch.exir.lowered_backend_module import LoweredBackendModule

#: A table of 16 bits is right however far it is from its function: whether that is too far was decided by the proof.
_FARTHEST = 2**16
#: Seconds that one run of a delegate may take.
_TIME_LIMIT = 600.0


@dataclass(frozen=True)
class Gap:
    """How far one tensor is from the quantised graph's, over all samples.

    Attributes:
        name: the output, or the delegate and the number of its output.
        worst, mean: the largest and the mean difference; in codes, or absolute for real floats.
        sqnr: signal to quantisation-noise ratio in dB; infinite if there is no difference.
        codes: whether ``worst`` and ``mean`` are in codes.
    """

    name: str
    worst: float
    mean: float
    sqnr: float
    codes: bool


@dataclass(frozen=True)
class Boundary:
    """One delegate's outputs.

    Attributes:
        delegate: its name, the tag that the partitioner's report calls it by.
        gaps: its outputs against the quantised graph, what other delegates added included.
        reason: what is wrong with the delegate itself, on the values that reached it; empty if nothing is.
    """

    delegate: str
    gaps: tuple[Gap, ...]
    reason: str


@dataclass(frozen=True)
class VerificationReport:
    """A lowered program compared with the quantised graph.

    Attributes:
        outputs: the program's outputs.
        boundaries: its delegates, in the order they run.
    """

    outputs: tuple[Gap, ...]
    boundaries: tuple[Boundary, ...]

    @property
    def first_wrong(self) -> Boundary | None:
        """The first delegate that is wrong on the values that reached it, None if none is."""
        return next((boundary for boundary in self.boundaries if boundary.reason), None)

    @property
    def verified(self) -> bool:
        """Whether no delegate is wrong."""
        return self.first_wrong is None


@torch.no_grad()
def verify(
    edge_program_manager: EdgeProgramManager,
    samples: Iterable[tuple[Tensor, ...]],
    *,
    reference: GraphModule | ExportedProgram | None = None,
    device: str = "reference-model",
) -> VerificationReport:
    """Run a lowered program, its delegates in the TOSA reference model, and compare it with the quantised graph.

    Args:
        edge_program_manager: what ``to_edge_transform_and_lower`` returned, lowered for TOSA.
        samples: inputs of the model's, each a tuple of tensors.
        reference: the converted PT2E graph module or its exported program, run in double; if None, the lowered program
            itself with the graphs its delegates were made from.
        device: what the delegates run on: ``"reference-model"``, or ``"vulkan"`` for model-converter's output on the ML
            emulation layer and this machine's Vulkan driver.

    Returns:
        The gaps of every output and every delegate; a difference is a code of 0 where a value may be rounded to either.

    Raises:
        UsageError: no samples, samples that are not finite or do not fit, a program of other than TOSA delegates,
            tosa-tools missing, or what the device needs.
        EvaluationError: the quantised graph cannot be evaluated on a sample.
        NoResultError: the reference model crashes on any graph, or did not finish; this process goes on.
    """
    require_reference_model()
    program = edge_program_manager.exported_program()
    given = matching(finite(samples), program)
    graph, known = (None, None) if reference is None else _in_double(reference)
    gaps: dict[str, _Gathered] = {}
    wrong: dict[str, list[str]] = {}
    runs = _runs(program, given, device)
    for sample, (expected, actual) in zip(given, runs, strict=True):
        for module, node_outputs in actual.delegates.items():
            name = actual.names[module]
            wrong.setdefault(name, []).extend(actual.reasons.get(module, ()))
            pairs = zip(
                node_outputs,
                expected.delegates[module],
                expected.steps[module],
                strict=True,
            )
            for index, (ours, theirs, step) in enumerate(pairs):
                gaps.setdefault(f"{name} output {index}", _Gathered(step)).add(
                    ours, theirs
                )
        results, wanted, steps = (
            list(actual.results),
            list(expected.results),
            expected.output_steps,
        )
        if graph is not None and known is not None:
            results, wanted, steps = (
                user_outputs(program, results),
                _as_at_first(graph, sample),
                known,
            )
        for index, (ours, theirs, step) in enumerate(
            zip(results, wanted, steps, strict=True)
        ):
            gaps.setdefault(f"output {index}", _Gathered(step)).add(ours, theirs)

    def of(owner: str) -> tuple[Gap, ...]:
        return tuple(
            gap.gap(label)
            for label, gap in gaps.items()
            if label.startswith(f"{owner}output ")
        )

    boundaries = (
        Boundary(name, of(f"{name} "), next(iter(reasons), ""))
        for name, reasons in wrong.items()
    )
    return VerificationReport(of(""), tuple(boundaries))


def _runs(
    program: ExportedProgram, samples: Sequence[tuple[Tensor, ...]], device: str
) -> Iterator[tuple[_Run, _Run]]:
    """Yield for each sample what the program should give and what it gives on a device."""
    with device_of(device).opened(_TIME_LIMIT) as runner:
        for sample in samples:
            yield _Run(program, sample, None), _Run(program, sample, runner)


class _Gathered:
    """The differences of one tensor over the samples."""

    def __init__(self, step: float | None) -> None:
        self._step, self._worst, self._sum, self._count = step, 0.0, 0.0, 0
        self._signal = self._noise = 0.0

    def add(self, actual: Tensor, expected: Tensor) -> None:
        in_steps = (actual.double() - expected.double()).abs() / (self._step or 1.0)
        in_steps = in_steps.round() if self._step is not None else in_steps
        self._worst = max(
            self._worst, float(in_steps.max()) if in_steps.numel() else 0.0
        )
        self._sum, self._count = (
            self._sum + float(in_steps.sum()),
            self._count + in_steps.numel(),
        )
        self._signal += float(expected.double().square().sum())
        self._noise += float((in_steps * (self._step or 1.0)).square().sum())

    def gap(self, name: str) -> Gap:
        sqnr = (
            math.inf
            if not self._noise
            else -math.inf
            if not self._signal
            else self._signal / self._noise
        )
        decibel = 10 * math.log10(sqnr) if 0 < sqnr < math.inf else sqnr
        return Gap(
            name,
            self._worst,
            self._sum / max(1, self._count),
            decibel,
            self._step is not None,
        )


class _Run:
    """What a lowered program and its delegates give for a sample.

    Args:
        program: the lowered program.
        sample: its inputs.
        runner: what its delegates run on; None to evaluate the graphs they were made from.

    Attributes:
        results: the program's outputs.
        delegates, steps: the outputs of each delegate, and the size of a code of each, None for real floats.
        reasons: what is wrong with a delegate on the values that reached it.
        names: by the name of its module, what a report calls a delegate.
    """

    def __init__(
        self, program: ExportedProgram, sample: Sequence[Tensor], runner: Runner | None
    ) -> None:
        self._program, self._runner = program, runner
        self.delegates: dict[str, list[Tensor]] = {}
        self.steps: dict[str, list[float | None]] = {}
        self.reasons: dict[str, list[str]] = {}
        self.names: dict[str, str] = {}
        self.results = run_with(self._delegate, program, sample)

    @property
    def output_steps(self) -> list[float | None]:
        """The size of a code of each output of the program, None for real floats."""
        return [self._step(node) for node in self._program.graph.output_node().args[0]]  # type: ignore

    def _step(self, node: Node) -> float | None:
        if node.op == "call_function" and node.target is operator.getitem:
            call, index = node.args
            if isinstance(call, Node) and str(call.args[0]) in self.steps:
                return self.steps[str(call.args[0])][int(index)]  # type: ignore[arg-type]
        return code_step(node)

    def _delegate(
        self, name: str, lowered: LoweredBackendModule, inputs: list[Tensor]
    ) -> list[Tensor]:
        if lowered.backend_id != "TOSABackend":
            raise UsageError(
                f"only TOSA delegates run in the reference model, this program's are for {lowered.backend_id}; lower "
                "it for a TosaCompileSpec of the same profile, or use SafeArmPartitioner(..., verify=True)"
            )
        self.names[name] = delegate_name(name, lowered)
        delegate = delegate_of(lowered, inputs)
        evaluation = evaluated(delegate.program, delegate.state, inputs)
        results = [
            evaluation.values[node].to(node.meta["val"].dtype)
            for node in delegate.outputs
        ]
        if self._runner is not None:
            try:
                results = run(delegate, inputs, self._runner)
                self.reasons[name] = _wrong(
                    delegate, inputs, results, evaluation, self._runner
                )
            except ReferenceModelError as error:
                self.reasons[name] = [str(error)]
        pairs = zip(results, delegate.outputs, strict=True)
        self.delegates[name] = results
        self.steps[name] = [
            code_step(node) if result.is_floating_point() else 1.0
            for result, node in pairs
        ]
        return results


def _wrong(
    delegate: Delegate,
    inputs: Sequence[Tensor],
    outputs: list[Tensor],
    evaluation: Evaluation,
    runner: Runner,
) -> list[str]:
    """Say what is wrong with a delegate's outputs for some inputs."""
    if not any(
        distance(n, output, evaluation).worst
        for n, output in zip(delegate.outputs, outputs, strict=True)
    ):
        return []
    _, tensors = run_tapped(delegate, inputs, runner)
    findings = find_culprits(delegate, inputs, outputs, tensors, farthest=_FARTHEST)
    return [
        f"{', '.join(sorted(culprit.names))}: differs by {culprit.distance}"
        for culprit in findings.culprits
    ]


def _as_at_first(graph: GraphModule, sample: Sequence[Tensor]) -> list[Tensor]:
    """Return what a graph gives when it is called first: what it writes into buffers and inputs is undone."""
    state = [(buffer, buffer._version, buffer.clone()) for buffer in graph.buffers()]
    leaves = tree_leaves(graph(*(tensor.clone() for tensor in sample)))
    with torch.no_grad():
        for buffer, version, value in state:
            if (
                buffer._version != version
            ):  # an expanded constant cannot be written, and was not
                buffer.copy_(value)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _in_double(
    reference: GraphModule | ExportedProgram,
) -> tuple[GraphModule, list[float | None]]:
    """Return a copy of the reference that computes in double, and the size of a code of each of its outputs."""
    module = (
        reference
        if isinstance(reference, GraphModule)
        else reference.module(check_guards=False)
    )
    outputs = tree_leaves(module.graph.output_node().args[0])
    steps = [code_step(node) for node in outputs if isinstance(node, Node)]
    module = duplicate(module)
    evaluate_in_double(module)
    return module, steps
