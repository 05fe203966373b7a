"""A whole lowered program against the quantised graph: delegates in the reference model, the rest eager."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from safe_arm.core.errors import UsageError
from safe_arm.verification.delegate import Delegate, Runner, run
from safe_arm.verification.devices import device as device_of
from safe_arm.verification.distance import code_step, distance
from safe_arm.verification.double import evaluate_in_double
from safe_arm.verification.evaluation import evaluated, placed
from safe_arm.verification.local import Local
from safe_arm.verification.reference_model import ReferenceModelError, require_reference_model
from safe_arm.verification.samples import finite, matching


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
        delegate: the name of its module.
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


def verify(
    edge_program_manager: Any,
    samples: Iterable[tuple[Tensor, ...]],
    *,
    reference: Any = None,
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
    """
    require_reference_model()
    run_on_device = partial(_run_delegate, runner=device_of(device).run)
    program = edge_program_manager.exported_program()
    given = matching(finite(samples), program)
    graph, known = (None, None) if reference is None else _in_double(reference)
    gaps: dict[str, _Gathered] = {}
    boundaries: dict[str, tuple[list[str], list[str]]] = {}
    for sample in given:
        expected = _Run(program, _evaluated_delegate).outputs(sample)
        actual = _Run(program, run_on_device).outputs(sample)
        for name, node_outputs in actual.delegates.items():
            names, reasons = boundaries.setdefault(name, ([], []))
            for index, (ours, theirs) in enumerate(zip(node_outputs, expected.delegates[name], strict=True)):
                label = f"{name} output {index}"
                names += [label] if label not in gaps else []
                gaps.setdefault(label, _Gathered(expected.steps[name][index])).add(ours, theirs)
            reasons += actual.reasons[name]
        wanted = expected.results if graph is None else _results(graph(*sample))
        steps = expected.output_steps if known is None else known
        for index, (ours, theirs, step) in enumerate(zip(actual.results, wanted, steps, strict=True)):
            gaps.setdefault(f"output {index}", _Gathered(step)).add(ours, theirs)
    outputs = tuple(gap.gap(name) for name, gap in gaps.items() if name.startswith("output "))
    return VerificationReport(
        outputs,
        tuple(
            Boundary(name, tuple(gaps[label].gap(label) for label in labels), next(iter(reasons), ""))
            for name, (labels, reasons) in boundaries.items()
        ),
    )


class _Gathered:
    """The differences of one tensor over the samples."""

    def __init__(self, step: float | None) -> None:
        self._step, self._worst, self._sum, self._count = step, 0.0, 0.0, 0
        self._signal = self._noise = 0.0

    def add(self, actual: Tensor, expected: Tensor) -> None:
        apart = (actual.double() - expected.double()).abs()
        in_steps = apart / (self._step or 1.0)
        in_steps = in_steps.round() if self._step is not None else in_steps
        self._worst = max(self._worst, float(in_steps.max()) if in_steps.numel() else 0.0)
        self._sum, self._count = self._sum + float(in_steps.sum()), self._count + in_steps.numel()
        self._signal += float(expected.double().square().sum())
        self._noise += float((in_steps * (self._step or 1.0)).square().sum())

    def gap(self, name: str) -> Gap:
        sqnr = math.inf if not self._noise else -math.inf if not self._signal else self._signal / self._noise
        decibel = 10 * math.log10(sqnr) if 0 < sqnr < math.inf else sqnr
        return Gap(name, self._worst, self._sum / max(1, self._count), decibel, self._step is not None)


class _Run(Interpreter):
    """Runs a lowered graph, its delegates by a function of (lowered module, inputs), and keeps their outputs."""

    def __init__(self, program: Any, call: Callable[[Any, Sequence[Tensor]], tuple[list[Tensor], list[str]]]) -> None:
        super().__init__(program.graph_module)
        self._program, self._call, self._at = program, call, ""
        self.delegates: dict[str, list[Tensor]] = {}
        self.steps: dict[str, list[float | None]] = {}
        self.reasons: dict[str, list[str]] = {}
        self.results: tuple[Tensor, ...] = ()

    def outputs(self, sample: Sequence[Tensor]) -> _Run:
        state = {**self._program.constants, **self._program.state_dict}
        values = placed(self._program, state, sample)
        with torch.no_grad():
            self.results = _results(self.run(*values.values()))
        return self

    @property
    def output_steps(self) -> list[float | None]:
        """The size of a code of each output of the program, None for real floats."""
        return [self._step(node) for node in self._program.graph_module.graph.output_node().args[0]]

    def _step(self, node: Node) -> float | None:
        if node.op == "call_function" and node.target is operator.getitem:
            call, index = node.args
            if isinstance(call, Node) and str(call.args[0]) in self.steps:
                return self.steps[str(call.args[0])][int(index)]  # type: ignore[arg-type]
        return code_step(node)

    def run_node(self, n: Node) -> Any:
        self._at = str(n.args[0]) if n.args and isinstance(n.args[0], Node) else ""
        return super().run_node(n)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if getattr(target, "__name__", "") != "executorch_call_delegate":
            return super().call_function(target, args, kwargs)
        results, reasons = self._call(args[0], args[1:])
        outputs = args[0].original_module.graph_module.graph.output_node().args[0]
        self.delegates[self._at], self.reasons[self._at] = results, reasons
        pairs = zip(results, outputs, strict=True)
        self.steps[self._at] = [code_step(o) if r.is_floating_point() else 1.0 for r, o in pairs]
        return results


def _delegate(lowered: Any) -> Delegate:
    if lowered.backend_id != "TOSABackend":
        raise UsageError(
            f"only TOSA delegates run in the reference model, this program's are for {lowered.backend_id}; lower it "
            "for a TosaCompileSpec of the same profile, or use SafeArmPartitioner(..., verify=True)"
        )
    program = lowered.original_module
    return Delegate(lowered.processed_bytes, program, {**program.constants, **program.state_dict}, {}, True)


def _evaluated_delegate(lowered: Any, inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[str]]:
    delegate = _delegate(lowered)
    evaluation = evaluated(delegate.program, delegate.state, inputs)
    values = [(evaluation.values[node], node.meta["val"].dtype) for node in delegate.outputs]
    return [value.to(dtype) for value, dtype in values], []


def _run_delegate(lowered: Any, inputs: Sequence[Tensor], runner: Runner) -> tuple[list[Tensor], list[str]]:
    """Run a delegate, and say what is wrong with it on these inputs."""
    delegate = _delegate(lowered)
    try:
        outputs = run(delegate, inputs, runner)
    except ReferenceModelError as error:
        return _evaluated_delegate(lowered, inputs)[0], [str(error)]
    evaluation = evaluated(delegate.program, delegate.state, inputs)
    apart = [distance(node, output, evaluation) for node, output in zip(delegate.outputs, outputs, strict=True)]
    if all(each.worst == 0 for each in apart):
        return outputs, []
    local = Local(delegate)
    local.run(inputs, outputs, runner)
    return outputs, [f"{', '.join(sorted(c.names))}: differs by {c.distance}" for c in local.culprits]


def _in_double(reference: Any) -> tuple[GraphModule, list[float | None]]:
    """Return a copy of the reference that computes in double, and the size of a code of each of its outputs."""
    module = reference if isinstance(reference, GraphModule) else reference.module(check_guards=False)
    outputs = torch.utils._pytree.tree_leaves(module.graph.output_node().args[0])
    steps = [code_step(node) for node in outputs if isinstance(node, Node)]
    module = copy.deepcopy(module)
    evaluate_in_double(module)
    return module, steps


def _results(outputs: Any) -> tuple[Tensor, ...]:
    leaves = torch.utils._pytree.tree_leaves(outputs)
    return tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))
