"""Compare a whole lowered program with the quantised graph: delegates in the reference model, the rest eagerly."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves, tree_unflatten

from safe_arm._compat.loading import delegate_name
from safe_arm._compat.loading import delegates as delegates_of
from safe_arm.core.attributes import duplicate
from safe_arm.core.errors import UsageError, one_of
from safe_arm.core.output_names import output_names
from safe_arm.core.programs import are_user_tensors, user_outputs
from safe_arm.verification.culprits import find_culprits
from safe_arm.verification.delegate import Delegate, Runner, run
from safe_arm.verification.devices import device as device_of
from safe_arm.verification.distance import code_step, distance
from safe_arm.verification.double import evaluate_in_double
from safe_arm.verification.evaluation import Evaluation, evaluated
from safe_arm.verification.lowered import delegate_of, run_with
from safe_arm.verification.model_server import (
    ReferenceModelError,
    require_reference_model,
)
from safe_arm.verification.placing import run_tapped
from safe_arm.verification.samples import FIXED, finite, matching

if TYPE_CHECKING:
    from executorch.exir import EdgeProgramManager
    from executorch.exir.lowered_backend_module import LoweredBackendModule

#: Any distance of a 16-bit table from its function is right here: the proof decided whether it is too large.
_FARTHEST = 2**16
#: Why outputs differ though no delegate is wrong.
_ROUNDED_ON = "no delegate is wrong on what it read: ties and what a tolerance allows make differences of a few codes"
#: Seconds that one run of a delegate may take.
_TIME_LIMIT = 600.0


@dataclass(frozen=True)
class Gap:
    """The difference of one tensor from the quantised graph's, over all samples.

    Attributes:
        name: the key under which the net returns the output, such as ``logits``, or its number; or the delegate and the
            number of its output.
        worst: the largest difference; in codes, or absolute for real floats.
        mean: the mean difference, likewise.
        sqnr: signal to quantisation-noise ratio in dB; infinite if there is no difference.
        codes: whether ``worst`` and ``mean`` are in codes.
    """

    name: str
    worst: float
    mean: float
    sqnr: float
    codes: bool

    def __str__(self) -> str:
        if not self.worst:
            return f"{self.name}: no difference"
        unit = "absolute"
        if self.codes:
            unit = "code" if self.worst == 1 else "codes"
        return f"{self.name}: {self.worst:g} {unit} at most, {self.mean:.3g} on average, {self.sqnr:.1f} dB"


@dataclass(frozen=True)
class Boundary:
    """One delegate's outputs.

    Attributes:
        delegate: its name: the tag in the partitioner's report.
        gaps: its outputs compared with the quantised graph, including the differences that other delegates added.
        reason: the error of the delegate itself, on the values that reached it; empty if there is none.
    """

    delegate: str
    gaps: tuple[Gap, ...]
    reason: str

    def __str__(self) -> str:
        if self.reason:
            return f"{self.delegate}: WRONG: {self.reason}"
        return f"{self.delegate}: verified"


@dataclass(frozen=True)
class VerificationReport:
    """A lowered program compared with the quantised graph.

    Attributes:
        outputs: the program's outputs.
        boundaries: its delegates, in the order in which they run.
    """

    outputs: tuple[Gap, ...]
    boundaries: tuple[Boundary, ...]

    @property
    def first_wrong(self) -> Boundary | None:
        """The first delegate that is wrong on the values that reached it; None if there is none."""
        for boundary in self.boundaries:
            if boundary.reason:
                return boundary
        return None

    @property
    def verified(self) -> bool:
        """Return True if no delegate is wrong."""
        return self.first_wrong is None

    def __str__(self) -> str:
        """Return a line for each output and each delegate."""
        lines = list(map(str, (*self.outputs, *self.boundaries)))
        if self.verified and any(gap.codes and gap.worst for gap in self.outputs):
            lines.append(_ROUNDED_ON)
        return "\n".join(lines)


@torch.no_grad()
def verify(
    edge_program_manager: EdgeProgramManager,
    samples: Iterable[tuple[Tensor, ...]],
    *,
    reference: GraphModule | ExportedProgram | None = None,
    device: str = "reference-model",
    method: str = "",
) -> VerificationReport:
    """Run a lowered program, its delegates in the TOSA reference model, and compare it with the quantised graph.

    Args:
        edge_program_manager: the result of ``to_edge_transform_and_lower``, lowered for TOSA.
        samples: inputs of the model, each a tuple of tensors, nested as the model takes them. Those that it takes by
            keyword follow the others, in the order of the example.
        reference: the converted PT2E graph module or its exported program, run in double; if None, the lowered program
            itself with the graphs its delegates were made from.
        device: where the delegates run: ``"reference-model"``, or ``"vulkan"`` for model-converter's output on the ML
            emulation layer and this machine's Vulkan driver.
        method: the method of a program of several; may be left out for ``forward`` and for a single one.

    Returns:
        The gaps of every output and every delegate. A tie that may be rounded to either code counts as no difference.

    Raises:
        UsageError: no lowered program, an unknown method, no samples, samples that are not finite or do not fit, a
            program with delegates other than TOSA, or a missing tool (tosa-tools, or what the device needs).
        EvaluationError: the quantised graph cannot be evaluated on a sample.
        NoResultError: the reference model crashes on any graph, or does not finish; this process survives.
    """
    require_reference_model()
    if not hasattr(edge_program_manager, "exported_program"):
        kind = type(edge_program_manager).__name__
        raise UsageError(
            f"verify takes a lowered program, what to_edge_transform_and_lower returns, not {kind}"
        )
    method = _known_method(method, edge_program_manager.methods)
    program = edge_program_manager.exported_program(method)
    _require_tosa(program)
    checked = matching(finite(samples), program)
    in_double = None if reference is None else _in_double(reference)
    outputs = _OutputDifferences()
    delegates: dict[str, _OutputDifferences] = {}
    runs = _runs(program, checked, device)
    for sample, (expected, actual) in zip(checked, runs, strict=True):
        for module, ours in actual.delegates.items():
            theirs = expected.delegates[module]
            differences = delegates.setdefault(module, _OutputDifferences(ours.name))
            differences.add(ours.results, theirs.results, theirs.steps)
            differences.reason = differences.reason or ours.reason
        if in_double is None:
            outputs.add(actual.results, expected.results, expected.output_steps)
        else:
            graph, steps = in_double
            results = user_outputs(program, actual.results)
            outputs.add(results, _as_at_first(graph, sample), steps)
    boundaries = [
        Boundary(each.name, each.gaps(f"{each.name} output"), each.reason)
        for each in delegates.values()
    ]
    return VerificationReport(outputs.named_gaps(program), tuple(boundaries))


def _known_method(method: str, methods: Collection[str]) -> str:
    """Return the method to run: the one that is named, ``forward``, or the only one."""
    if not method and len(methods) == 1:
        return next(iter(methods))
    wanted = method or "forward"
    if wanted not in methods:
        raise one_of("method", wanted, sorted(methods))
    return wanted


def _require_tosa(program: ExportedProgram) -> None:
    """Raise if a delegate is another backend's: raised while the graph runs, the error would carry torch.fx's text."""
    for _, lowered in delegates_of(program.graph_module):
        if lowered.backend_id != "TOSABackend":
            raise UsageError(
                f"only TOSA delegates run in the reference model, this program's are for {lowered.backend_id}; lower "
                "it for a TosaCompileSpec of the same profile, or use SafeArmPartitioner(..., verify=True)"
            )


def _runs(
    program: ExportedProgram, samples: Sequence[tuple[Tensor, ...]], device: str
) -> Iterator[tuple[_Run, _Run]]:
    """Yield for each sample what the program should give and what it gives on a device."""
    with device_of(device).opened(_TIME_LIMIT) as runner:
        for sample in samples:
            yield _Run(program, sample, None), _Run(program, sample, runner)


@dataclass
class _TensorDifference:
    """The difference of one tensor, gathered over the samples.

    Attributes:
        step: the size of its codes; None for real floats.
    """

    step: float | None
    worst: float = 0.0
    total: float = 0.0
    count: int = 0
    signal: float = 0.0
    noise: float = 0.0

    def add(self, actual: Tensor, expected: Tensor) -> None:
        step = self.step or 1.0
        in_steps = (actual.double() - expected.double()).abs() / step
        if self.step is not None:
            in_steps = in_steps.round()
        if in_steps.numel():
            self.worst = max(self.worst, float(in_steps.max()))
        self.total += float(in_steps.sum())
        self.count += in_steps.numel()
        self.signal += float(expected.double().square().sum())
        self.noise += float((in_steps * step).square().sum())

    def gap(self, name: str) -> Gap:
        sqnr = math.inf
        if self.noise:
            sqnr = self.signal / self.noise
            if not self.signal:
                sqnr = -math.inf
            elif 0 < sqnr < math.inf:
                sqnr = 10 * math.log10(sqnr)
        mean = self.total / max(1, self.count)
        return Gap(name, self.worst, mean, sqnr, self.step is not None)


@dataclass
class _OutputDifferences:
    """The differences of the outputs of a program or a delegate, gathered over the samples.

    Attributes:
        name: the delegate's; empty for the program itself. Two delegates may share a name.
        reason: the error of the delegate itself; empty if it is right.
    """

    name: str = ""
    reason: str = ""
    outputs: list[_TensorDifference] = field(default_factory=list)

    def add(
        self,
        actual: Sequence[Tensor],
        expected: Sequence[Tensor],
        steps: Sequence[float | None],
    ) -> None:
        """Add the outputs for one sample; steps are the sizes of their codes."""
        if not self.outputs:
            self.outputs.extend(map(_TensorDifference, steps))
        pairs = zip(self.outputs, actual, expected, strict=True)
        for difference, ours, theirs in pairs:
            difference.add(ours, theirs)

    def gaps(self, label: str) -> tuple[Gap, ...]:
        return tuple(
            output.gap(f"{label} {number}")
            for number, output in enumerate(self.outputs)
        )

    def named_gaps(self, program: ExportedProgram) -> tuple[Gap, ...]:
        """Return the gaps of a program's outputs, each with the key under which the net returns it if it has one."""
        spec = program.call_spec.out_spec
        are_tensors = are_user_tensors(program)
        names = list(compress(output_names(spec, len(are_tensors)), are_tensors))
        if len(names) != len(self.outputs):  # It has the state that is written, too.
            names = output_names(None, len(self.outputs))
        pairs = zip(self.outputs, names, strict=True)
        return tuple(output.gap(name) for output, name in pairs)


@dataclass(frozen=True)
class _DelegateRun:
    """The run of a delegate on one sample.

    Attributes:
        name: its name in the report.
        results: its outputs.
        steps: the size of a code of each; None for real floats.
        reason: its error on the values that reached it; empty if it is right.
    """

    name: str
    results: list[Tensor]
    steps: list[float | None]
    reason: str


class _Run:
    """The run of a lowered program on one sample.

    Args:
        program: the lowered program.
        sample: its inputs.
        runner: runs its delegates; None to evaluate the graphs they were made from.

    Attributes:
        delegates: the runs of its delegates, by the name of the module.
        results: the program's outputs.
    """

    def __init__(
        self, program: ExportedProgram, sample: Sequence[Tensor], runner: Runner | None
    ) -> None:
        self._program = program
        self._runner = runner
        self.delegates: dict[str, _DelegateRun] = {}
        self.results = run_with(self._delegate, program, sample)

    @property
    def output_steps(self) -> list[float | None]:
        """The size of a code of each output of the program, None for real floats."""
        return [
            self._step(node)
            for node in self._program.graph.output_node().args[0]
            if isinstance(node, Node)
        ]  # type: ignore

    def _step(self, node: Node) -> float | None:
        if node.op == "call_function" and node.target is operator.getitem:
            call, index = node.args
            if isinstance(call, Node) and str(call.args[0]) in self.delegates:
                return self.delegates[str(call.args[0])].steps[int(index)]  # type: ignore[arg-type]
        return code_step(node)

    def _delegate(
        self, module: str, lowered: LoweredBackendModule, inputs: list[Tensor]
    ) -> list[Tensor]:
        """Run a delegate and record its outputs; evaluate its graph if no device can run it."""
        delegate = delegate_of(lowered, inputs)
        evaluation = evaluated(delegate.program, delegate.state, inputs)
        results = None
        reason = ""
        if self._runner is not None:
            try:
                results = run(delegate, inputs, self._runner)
                reason = _wrong(delegate, inputs, results, evaluation, self._runner)
            except ReferenceModelError as error:
                reason = str(error)
        if results is None:
            results = [
                evaluation.values[node].to(node.meta["val"].dtype)
                for node in delegate.outputs
            ]
        steps = []
        for node, result in zip(delegate.outputs, results, strict=True):
            steps.append(code_step(node) if result.is_floating_point() else 1.0)
        name = delegate_name(module, lowered)
        self.delegates[module] = _DelegateRun(name, results, steps, reason)
        return results


def _wrong(
    delegate: Delegate,
    inputs: Sequence[Tensor],
    outputs: list[Tensor],
    evaluation: Evaluation,
    runner: Runner,
) -> str:
    """Return the error of a delegate's outputs for some inputs; empty if they are right."""
    pairs = zip(delegate.outputs, outputs, strict=True)
    if not any(distance(node, output, evaluation).worst for node, output in pairs):
        return ""
    _, tensors = run_tapped(delegate, inputs, runner)
    findings = find_culprits(delegate, inputs, outputs, tensors, farthest=_FARTHEST)
    if not findings.culprits:
        return ""
    culprit = findings.culprits[0]
    return f"{', '.join(sorted(culprit.names))}: differs by {culprit.distance}"


def _as_at_first(graph: GraphModule, sample: Sequence[Tensor]) -> list[Tensor]:
    """Return the results of a graph's first call; its writes into buffers and inputs are undone."""
    state = [(buffer, buffer._version, buffer.clone()) for buffer in graph.buffers()]
    args, keywords = _arguments(graph, [tensor.clone() for tensor in sample])
    leaves = tree_leaves(graph(*args, **keywords))
    with torch.no_grad():
        for buffer, version, value in state:
            # An expanded constant cannot be written, and was not.
            if buffer._version != version:
                buffer.copy_(value)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _arguments(
    graph: GraphModule, tensors: Sequence[Tensor]
) -> tuple[Sequence[object], dict[str, object]]:
    """Return the arguments of a call, nested and by keyword as the graph takes them."""
    placeholders = graph.graph.find_nodes(op="placeholder")
    info = getattr(graph.graph._codegen, "pytree_info", None)
    if info is None or info.in_spec.num_leaves != len(placeholders):
        return tensors, {}
    given = iter(tensors)
    leaves = []
    for node in placeholders:
        value = node.meta.get("val", given)
        is_fixed = isinstance(value, FIXED)
        leaves.append(value if is_fixed else next(given, None))
    args, keywords = tree_unflatten(leaves, info.in_spec)
    return args, keywords


def _in_double(
    reference: GraphModule | ExportedProgram,
) -> tuple[GraphModule, list[float | None]]:
    """Return a copy of the reference that computes in double, and the size of a code of each of its outputs."""
    module = reference
    if isinstance(module, ExportedProgram):
        module = module.module(check_guards=False)
    if not isinstance(module, GraphModule):
        raise UsageError(
            f"the reference is the converted graph module or its exported program, not {type(module).__name__}"
        )
    outputs = tree_leaves(module.graph.output_node().args[0])
    steps = [code_step(node) for node in outputs if isinstance(node, Node)]
    module = duplicate(module)
    evaluate_in_double(module)
    return module, steps
