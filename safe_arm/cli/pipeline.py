"""The work behind ``safe-arm export`` and ``safe-arm check``. Importing it loads torch and executorch."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from executorch.exir import (
    EdgeCompileConfig,
    ExecutorchProgramManager,
    to_edge_transform_and_lower,
)
from torch.export import ExportedProgram

from safe_arm.accuracy import measure, tag_units
from safe_arm.cli.float_program import rewritten
from safe_arm.cli.foreign_code import tensors_only
from safe_arm.cli.initial_state import config_with_state
from safe_arm.cli.integer_io import take_integers
from safe_arm.cli.model_file import ADVICE, schema_version
from safe_arm.cli.output_file import write_output
from safe_arm.cli.progress import Steps
from safe_arm.cli.quantising import (
    Loaded,
    calibrated,
    compile_spec,
    inputs_of,
    samples_of,
)
from safe_arm.cli.random_samples import random_arrays
from safe_arm.core.errors import DemotionWarning, DoubtfulInputWarning, UsageError
from safe_arm.core.island import call_functions, op_name
from safe_arm.footprint.kernels import missing_kernels, operator_list
from safe_arm.footprint.memory import with_footprint
from safe_arm.partitioner.listener import Counting, Listener
from safe_arm.partitioner.lowering import Cut, Lowered
from safe_arm.report.files import rendered
from safe_arm.safe_partitioner import SafeArmPartitioner

if TYPE_CHECKING:
    from safe_arm.bundle.writing import ShippedGraphs
    from safe_arm.cli.request import Request
    from safe_arm.cli.request_check import Checked
    from safe_arm.core.record import Report
    from safe_arm.core.unit_accuracy import Accuracy
    from safe_arm.partitioner.checks import Policy

#: The length in seconds from which a verification is announced outside a terminal, which shows a bar.
LONG = 5.0
#: The warnings that the user sees: demotions, and inputs that spoil an export.
_OURS = (DemotionWarning, DoubtfulInputWarning)
#: The operators of torchao's own quantisation, which is not PT2E.
_FOREIGN = ("torchao::quantize", "torchao::dequantize")


def load(path: Path) -> ExportedProgram:
    """Load an exported program, float or quantised by PT2E.

    Raises:
        UsageError: torch cannot read it, or it is quantised in another way.
    """
    try:
        with tensors_only():
            program = torch.export.load(path)
    except pickle.UnpicklingError as error:
        raise UsageError(
            f"model {str(path)!r} holds pickled Python objects among its tensors or example inputs, which would run "
            f"code; safe-arm loads tensors and plain values only, docs/security.md says why ({_first_line(error)})"
        ) from error
    except Exception as error:
        raise UsageError(
            f"model {str(path)!r} cannot be loaded: {_why_not(path, error)}"
        ) from error
    for node in call_functions(program.graph_module):
        if op_name(node).startswith(_FOREIGN):
            raise UsageError(
                f"model {str(path)!r} is quantised already ({op_name(node)}), but not by PT2E; give the float program, "
                "safe-arm export quantises it itself"
            )
    return program


def _why_not(path: Path, error: Exception) -> str:
    from torch._export.serde.schema import SCHEMA_VERSION

    written = schema_version(path)
    if written is not None:
        version, writer = written
        theirs, ours = (".".join(map(str, each)) for each in (version, SCHEMA_VERSION))
        by = f"{writer}, schema {theirs}; torch {torch.__version__} reads"
        if version > tuple(SCHEMA_VERSION):
            return (
                f"it was saved by a newer torch ({by} up to {ours}); upgrade torch or export the model again with "
                "this one"
            )
        if version[0] < SCHEMA_VERSION[0]:
            return (
                f"it was saved by an older torch ({by} schema {SCHEMA_VERSION[0]}); export the model again with this "
                "torch"
            )
    said = _first_line(error)
    if "warnings above" in said:
        said = "We ran into an error when deserializing the saved file"
    return f"torch {torch.__version__} says {said!r}; {ADVICE} (-v shows all that torch says)"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def loaded(request: Request, checked: Checked | None, steps: Steps) -> Loaded:
    """Load the program of a request, and the samples to calibrate it on if it is to be quantised.

    Raises:
        UsageError: the program cannot be loaded, or the arrays do not match its inputs.
    """
    program = load(request.model)
    if checked is None:
        return Loaded(request, program)
    arrays = checked.arrays
    if arrays is None:
        arrays = random_arrays(inputs_of(program), steps)
    samples = samples_of(program, arrays, steps)
    return Loaded(request, program, samples, checked.kept_float)


@dataclass(frozen=True)
class Quantised:
    """A program that is ready to be lowered.

    Attributes:
        program: the quantised program, or the float one if that is lowered.
        methods: the constant methods to add to it, by name.
        accuracy: how close it is to the float one; None if they were not compared.
    """

    program: ExportedProgram
    methods: Mapping[str, float | int]
    accuracy: Accuracy | None


@dataclass(frozen=True)
class LoweredProgram:
    """A lowered program.

    Attributes:
        program: what is written as a ``.pte``.
        report: the partitioner's, with the accuracy if it was asked for.
        shipped: the graphs of its delegates, if the proof is to be bundled.
    """

    program: ExecutorchProgramManager
    report: Report
    shipped: ShippedGraphs | None


def run(source: Loaded, steps: Steps) -> dict[str, Report]:
    """Quantise if there are samples, lower under each policy, and write the files that the request names.

    Returns:
        The reports by policy. A program without a refused island has one report for all.
    """
    request = source.request
    quantised = quantise(source, steps)
    reports: dict[str, Report] = {}
    without_kernel: dict[str, Sequence[str]] = {}
    for policy in request.policies:
        rejecting = reports.get("reject")
        if rejecting is not None and not rejecting.islands_refused:
            reports[policy] = rejecting
            without_kernel[policy] = without_kernel["reject"]
            continue
        outcome = lower(request, policy, quantised, steps)
        without_kernel[policy] = missing_kernels(outcome.program)
        if request.output is not None:
            _write_program(request.output, quantised, outcome, steps)
        reports[policy] = outcome.report
        if request.footprint:
            with steps.step("measure the footprint", announce=False):
                reports[policy] = with_footprint(outcome.report, outcome.program)
    report = reports[request.policy]
    if request.operators is not None:
        kernels = report.footprint.kernels if report.footprint else ()
        with steps.step(f"write {request.operators}"):
            write_output(request.operators, operator_list(kernels).encode())
    for path in request.reports:
        with steps.step(f"write {path}"):
            write_output(path, rendered(report, path, request.model.stem))
    missing = without_kernel[request.policy]
    if missing:
        steps.warn(
            "the .pte will not load, because ExecuTorch's portable, quantized and Cortex-M libraries have no kernel "
            f"for {', '.join(missing)}; link one of your own, or keep the operator out of the program"
        )
    return reports


def quantise(source: Loaded, steps: Steps) -> Quantised:
    """Quantise a program if there are samples, and compare it with the float one if that was asked for."""
    program = source.program
    samples = source.samples
    accuracy = None
    if samples is not None:
        with warnings_noted(steps):
            module, reference = calibrated(source, steps)
            if reference is not None:
                tag_units(module)
                with steps.step("compare with the float model"):
                    accuracy = measure(reference, module, samples)
            program = torch.export.export(module, samples[0])
    elif not source.request.profile.integer:
        program = rewritten(source.request, program, steps)
    methods = take_integers(program) if source.request.integer_io else {}
    return Quantised(program, methods, accuracy)


def lower(
    request: Request, policy: str, quantised: Quantised, steps: Steps
) -> LoweredProgram:
    """Lower a program under a policy."""
    graphs = None
    if request.bundle:
        from safe_arm.bundle.writing import ShippedGraphs

        graphs = ShippedGraphs()
    listener = LoweringProgress(steps, graphs)
    with warnings_noted(steps):
        partitioner = SafeArmPartitioner(
            compile_spec(request),
            non_fuseable=cast("Policy", policy),
            strict=request.strict,
            repro_dir=request.repro_dir,
            verify=request.verify,
            verify_tolerance=request.tolerance,
            min_macs=request.min_macs,
            listener=listener,
        )
    under = f", --non-fuseable {policy}" if request.compare else ""
    with steps.step(f"lower for {request.target}{under}"), warnings_noted(steps):
        edge = to_edge_transform_and_lower(
            quantised.program,
            partitioner=[partitioner],
            compile_config=EdgeCompileConfig(_check_ir_validity=False),
            constant_methods=dict(quantised.methods) or None,
        )
        program = edge.to_executorch(config=config_with_state(edge))
    report = partitioner.report
    assert report is not None  # it was asked
    report = replace(report, accuracy=quantised.accuracy)
    return LoweredProgram(program, report, listener.graphs)


def _write_program(
    output: Path,
    quantised: Quantised,
    outcome: LoweredProgram,
    steps: Steps,
) -> None:
    """Write the ``.pte``, and the proof beside it if that was asked for."""
    with steps.step(f"write {output}"):
        write_output(output, outcome.program.write_to_file)
    if outcome.shipped is not None:
        from safe_arm.bundle.writing import write_bundle

        programs = {"forward": quantised.program}
        with steps.step(f"bundle {output}"):
            write_bundle(
                output, outcome.program, programs, outcome.shipped, outcome.report
            )


class LoweringProgress(Listener):
    """Shows trials and proofs as steps, and collects the graphs that ship.

    Args:
        steps: shows them.
        graphs: collects the graphs; None to collect none.
    """

    def __init__(self, steps: Steps, graphs: ShippedGraphs | None = None) -> None:
        self.graphs = graphs
        self._steps = steps

    def trying(self, delegates: int) -> Counting:
        return self._steps.count("lower delegate", delegates)

    def proving(
        self,
        macs: int,
        seconds: float,
        runs: int,
    ) -> Counting:
        """Show a bar that counts the sets of inputs, with an estimate of the time left."""
        size = f"{macs / 1e6:.0f} million MACs" if macs >= 1e6 else f"{macs} MACs"
        name = f"verify {size}, about {seconds:.0f} s"
        line = f"verify a delegate of {size}, about {seconds:.0f} s (--no-verify leaves it out)"
        return self._steps.part(name, runs, line if seconds >= LONG else "")

    def shipped(self, method: str, delegates: Sequence[tuple[Cut, Lowered]]) -> None:
        if self.graphs is not None:
            self.graphs.shipped(method, delegates)


@contextmanager
def warnings_noted(steps: Steps) -> Iterator[None]:
    """Show our own warnings of the block although libraries are silenced; issue the others again."""
    with warnings.catch_warnings(record=True) as caught:
        for category in _OURS:
            warnings.simplefilter("always", category)
        yield
    for warning in caught:
        if issubclass(warning.category, _OURS):
            steps.warn(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
