"""The work behind ``safe-arm export`` and ``safe-arm check``. Importing it loads torch and executorch."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torch.export import ExportedProgram
from torch.fx import GraphModule

from safe_arm._compat.upstream import EthosUCompileSpec, TosaCompileSpec, VgfCompileSpec
from safe_arm.cli.foreign_code import tensors_only
from safe_arm.cli.initial_state import config_with_state
from safe_arm.cli.integer_io import take_integers
from safe_arm.cli.model_file import ADVICE, schema_version
from safe_arm.cli.output_file import write_output
from safe_arm.cli.progress import Steps
from safe_arm.cli.quantising import (
    CompileSpec,
    Samples,
    inputs_of,
    quantised,
    samples_of,
)
from safe_arm.cli.random_samples import random_arrays
from safe_arm.core.errors import (
    DemotionWarning,
    DoubtfulInputWarning,
    InternalError,
    UsageError,
)
from safe_arm.core.island import call_functions, op_name
from safe_arm.report.files import rendered
from safe_arm.safe_partitioner import SafeArmPartitioner

if TYPE_CHECKING:
    from safe_arm.cli.request import Request
    from safe_arm.cli.request_check import Checked
    from safe_arm.core.record import Report
    from safe_arm.core.unit_accuracy import Accuracy
    from safe_arm.partitioner.checks import Policy

#: From so many seconds on, a verification is announced where there is no terminal to show a bar on.
LONG = 5.0
#: What the user is told: a demotion, and what makes any export poor.
_OURS = (DemotionWarning, DoubtfulInputWarning)
#: torchao's own quantisation, of weights as a rule: no PT2E.
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
    foreign = next(
        (
            n
            for n in call_functions(program.graph_module)
            if op_name(n).startswith(_FOREIGN)
        ),
        None,
    )
    if foreign is not None:
        raise UsageError(
            f"model {str(path)!r} is quantised already ({op_name(foreign)}), but not by PT2E; give the float program, "
            "safe-arm export quantises it itself"
        )
    return program


def _why_not(path: Path, error: Exception) -> str:
    from torch._export.serde.schema import SCHEMA_VERSION

    found = schema_version(path)
    if found is not None and found[0] > tuple(SCHEMA_VERSION):
        theirs, ours = (
            ".".join(map(str, version)) for version in (found[0], SCHEMA_VERSION)
        )
        return (
            f"it was saved by a newer torch ({found[1]}, schema {theirs}; torch {torch.__version__} reads up to "
            f"{ours}); upgrade torch or export the model again with this one"
        )
    return f"torch {torch.__version__} says {_first_line(error)!r}; {ADVICE} (-v shows all that torch says)"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def samples_for(
    checked: Checked, program: ExportedProgram, steps: Steps
) -> Samples | None:
    """Return what to calibrate a program on, None if it is not to be quantised.

    Raises:
        UsageError: the arrays do not match its inputs.
    """
    if not checked.quantises:
        return None
    arrays = (
        random_arrays(inputs_of(program), steps)
        if checked.arrays is None
        else checked.arrays
    )
    return samples_of(program, arrays, steps)


def run(
    request: Request,
    program: ExportedProgram,
    samples: Samples | None,
    kept_float: Sequence[str],
    steps: Steps,
) -> dict[str, Report]:
    """Quantise if there are samples, lower under each policy, and write what there is a name for.

    Args:
        kept_float: the paths of the modules that are not quantised.

    Returns:
        By policy, what was delegated and what was not. What the first of them does not touch has one result for all.
    """
    spec = compile_spec(request)
    comparison = (
        _Comparison(samples, steps)
        if samples is not None and request.compares_with_float
        else None
    )
    if samples is not None:
        with warnings_noted(steps):
            program = quantised(
                program,
                spec,
                samples,
                request.quantisation,
                kept_float,
                steps,
                comparison,
            )
    methods = take_integers(program) if request.integer_io else {}
    reports: dict[str, Report] = {}
    for policy in request.policies:
        alike = next(
            (report for report in reports.values() if not report.islands_refused), None
        )
        found = alike or _lowered(
            replace(request, policy=policy), program, spec, methods, steps
        )
        reports[policy] = (
            replace(found, accuracy=comparison.accuracy) if comparison else found
        )
    if request.operators is not None:
        with steps.step(f"write {request.operators}"):
            _write_operators(request.operators, reports[request.policy])
    for path in request.reports:
        with steps.step(f"write {path}"):
            content = rendered(reports[request.policy], path, request.model.stem)
            write_output(path, content)
    return reports


class _Comparison:
    """Compares a quantised net with the float one, and keeps what it finds.

    Attributes:
        accuracy: what it found; None before.
    """

    accuracy: Accuracy | None = None

    def __init__(self, samples: Samples, steps: Steps) -> None:
        self._samples, self._steps = samples, steps

    def __call__(self, reference: GraphModule, module: GraphModule) -> None:
        from safe_arm.accuracy import measure, tag_units  # loads pandas

        tag_units(module)
        with self._steps.step("compare with the float model"):
            self.accuracy = measure(reference, module, self._samples)


def _lowered(
    request: Request,
    program: ExportedProgram,
    spec: CompileSpec,
    methods: dict[str, float | int],
    steps: Steps,
) -> Report:
    """Lower under the request's policy, and write the ``.pte``, with some constant methods, if it has a name."""
    partitioner = SafeArmPartitioner(
        spec,
        non_fuseable=cast("Policy", request.policy),
        strict=request.strict,
        repro_dir=request.repro_dir,
        verify=request.verify,
        verify_tolerance=request.tolerance,
    )
    partitioner.during_proof = partial(_proof, steps)
    partitioner.during_trials = partial(steps.count, "lower delegate")
    if request.bundle:
        from safe_arm.bundle.writing import ShippedGraphs, write_bundle

        partitioner.during_shipping = shipped = ShippedGraphs()
    under = f", --non-fuseable {request.policy}" if request.compare else ""
    with steps.step(f"lower for {request.target}{under}"), warnings_noted(steps):
        edge = to_edge_transform_and_lower(
            program,
            partitioner=[partitioner],
            compile_config=EdgeCompileConfig(_check_ir_validity=False),
            constant_methods=methods or None,
        )
        lowered = edge.to_executorch(config=config_with_state(edge))
    if request.output is not None:
        with steps.step(f"write {request.output}"):
            write_output(request.output, lowered.write_to_file)
    if partitioner.report is None:
        raise InternalError("the partitioner was never asked")
    if request.output is not None and request.bundle:
        with steps.step(f"bundle {request.output}"):
            write_bundle(
                request.output,
                lowered,
                {"forward": program},
                shipped,
                partitioner.report,
            )
    if not request.measures_footprint:
        return partitioner.report
    from safe_arm.footprint.memory import with_footprint

    with steps.step("measure the footprint", announce=False):
        return with_footprint(partitioner.report, lowered)


def _write_operators(path: Path, report: Report) -> None:
    """Write the list of the kernels that a program calls."""
    from safe_arm.footprint.kernels import operator_list

    write_output(
        path,
        operator_list(report.footprint.kernels if report.footprint else ()).encode(),
    )


def _proof(
    steps: Steps, cost: int, seconds: float, runs: int
) -> AbstractContextManager[Callable[[], None]]:
    """Show a verification: a bar that counts the sets of inputs, and says after the first what time is left."""
    size = f"{cost / 1e6:.0f} million MACs" if cost >= 1e6 else f"{cost} MACs"
    name = f"verify {size}, about {seconds:.0f} s"
    line = f"verify a delegate of {size}, about {seconds:.0f} s (--no-verify leaves it out)"
    return steps.part(name, runs, line if seconds >= LONG else "")


@contextmanager
def warnings_noted(steps: Steps) -> Iterator[None]:
    """Pass on our own warnings, which the quiet would swallow; others go their way."""
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


def compile_spec(request: Request) -> CompileSpec:
    """Return the compile spec of a request's target.

    Raises:
        UsageError: its profile is not known.
    """
    if request.target.startswith("ethos-u"):
        names = {
            "config": "config_ini"
        }  # what is not given, ExecuTorch picks for the family
        told = {
            names.get(name, name): value for name, value in request.vela.given.items()
        }
        return EthosUCompileSpec(request.target, **told)
    try:
        return (VgfCompileSpec if request.target == "vgf" else TosaCompileSpec)(
            request.profile.text
        )
    except ValueError as error:
        raise UsageError(
            f"profile {request.profile.text!r} is not known to this ExecuTorch: {error}"
        ) from error
