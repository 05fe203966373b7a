"""The work behind ``safe-arm export`` and ``safe-arm check``. Importing it loads torch and executorch."""

from __future__ import annotations

import inspect
import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias, cast

import numpy as np
import torch
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, TensorArgument

from safe_arm._compat.upstream import EthosUCompileSpec, TosaCompileSpec, VgfCompileSpec
from safe_arm.cli.calibration import ModelInput, match
from safe_arm.cli.foreign_code import tensors_only
from safe_arm.cli.model_file import ADVICE, schema_version
from safe_arm.cli.output_file import write_output
from safe_arm.cli.progress import Steps
from safe_arm.core.errors import DemotionWarning, InternalError, UsageError
from safe_arm.core.island import call_functions, op_name
from safe_arm.quantizer.safe_quantizers import SafeEthosUQuantizer, SafeTOSAQuantizer, SafeVgfQuantizer
from safe_arm.report.files import rendered
from safe_arm.safe_partitioner import SafeArmPartitioner

if TYPE_CHECKING:
    from safe_arm.cli.request import Request
    from safe_arm.core.record import Report
    from safe_arm.partitioner.checks import Policy

#: From so many seconds on, a verification is announced where there is no terminal to show a bar on.
LONG = 5.0
CompileSpec: TypeAlias = EthosUCompileSpec | TosaCompileSpec | VgfCompileSpec
QUANTIZERS = {
    EthosUCompileSpec: SafeEthosUQuantizer, TosaCompileSpec: SafeTOSAQuantizer, VgfCompileSpec: SafeVgfQuantizer,
}  # fmt: skip
_QUANTISED = ("quantized_decomposed::", "torchao::quantize", "torchao::dequantize")


class Samples(list[tuple[object, ...]]):
    """Calibration samples that report how far the iteration over them is.

    Attributes:
        advance: called after each sample.
        at: the index of the sample in use, None outside an iteration.
    """

    advance: Callable[[], None] = staticmethod(lambda: None)
    at: int | None = None

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        for self.at, sample in enumerate(super().__iter__()):
            yield sample
            self.advance()
        self.at = None


def load(path: Path) -> ExportedProgram:
    """Load a float exported program.

    Raises:
        UsageError: torch cannot read it, or it is quantised already.
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
        raise UsageError(f"model {str(path)!r} cannot be loaded: {_why_not(path, error)}") from error
    quantised = next((n for n in call_functions(program.graph_module) if op_name(n).startswith(_QUANTISED)), None)
    if quantised is not None:
        raise UsageError(
            f"model {str(path)!r} is quantised already ({op_name(quantised)}); give the float program, "
            "safe-arm export quantises it itself"
        )
    return program


def _why_not(path: Path, error: Exception) -> str:
    from torch._export.serde.schema import SCHEMA_VERSION

    found = schema_version(path)
    if found is not None and found[0] > tuple(SCHEMA_VERSION):
        theirs, ours = (".".join(map(str, version)) for version in (found[0], SCHEMA_VERSION))
        return (
            f"it was saved by a newer torch ({found[1]}, schema {theirs}; torch {torch.__version__} reads up to "
            f"{ours}); upgrade torch or export the model again with this one"
        )
    return f"torch {torch.__version__} says {_first_line(error)!r}; {ADVICE} (-v shows all that torch says)"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def samples_of(program: ExportedProgram, arrays: dict[str, np.ndarray], steps: Steps) -> Samples:
    """Match calibration arrays with a program's inputs, and say which dynamic shapes they fix.

    Returns:
        Samples: for each sample the positional arguments of the program's module.

    Raises:
        UsageError: they do not match.
    """
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    inputs = [_model_input(program, spec) for spec in specs if not isinstance(spec.arg, ConstantArgument)]
    if not inputs:
        raise UsageError("the model has no tensor inputs, so it cannot be calibrated; export one that has")
    ordered = match(arrays, inputs)
    for each, array in zip(inputs, ordered, strict=True):
        if None in each.shape:
            steps.note(f"Note: input {each.name!r} is dynamic; it is fixed to the samples' shape {array.shape[1:]}")
    signature = inspect.signature(program.module(check_guards=False).forward)
    return Samples(_arguments(program, specs, row, signature) for row in zip(*ordered, strict=True))


def _model_input(program: ExportedProgram, spec: InputSpec) -> ModelInput:
    if not isinstance(spec.arg, TensorArgument):
        raise UsageError(f"input {spec.arg.name!r} of the model is a dynamic number; export it with a fixed one")
    value = next(node for node in program.graph.nodes if node.name == spec.arg.name).meta["val"]
    shape = tuple(size if isinstance(size, int) else None for size in value.shape)
    return ModelInput(spec.arg.name, shape, str(value.dtype).removeprefix("torch."))


def _arguments(
    program: ExportedProgram, specs: list[InputSpec], row: tuple[np.ndarray, ...], signature: inspect.Signature
) -> tuple[object, ...]:
    """Put one sample's arrays and the model's constant inputs into the structure it was exported with."""
    tensors = iter(row)
    flat = [
        spec.arg.value if isinstance(spec.arg, ConstantArgument) else torch.from_numpy(np.asarray(next(tensors)))
        for spec in specs
    ]
    args, kwargs = torch.utils._pytree.tree_unflatten(flat, program.call_spec.in_spec)
    return signature.bind(*args, **kwargs).args


def run(request: Request, program: ExportedProgram, samples: Samples | None, steps: Steps) -> dict[str, Report]:
    """Quantise if there are samples, lower under each policy, and write what there is a name for.

    Returns:
        By policy, what was delegated and what was not. What the first of them does not touch has one result for all.
    """
    spec = _compile_spec(request)
    if samples is not None:
        program = _quantise(program, spec, samples, steps)
    reports: dict[str, Report] = {}
    for policy in request.policies:
        alike = next((report for report in reports.values() if not report.islands_refused), None)
        reports[policy] = alike or _lowered(replace(request, policy=policy), program, spec, steps)
    for path in request.reports:
        with steps.step(f"write {path}"):
            content = rendered(reports[request.policy], path, request.model.stem)
            write_output(path, partial(_write, content))
    return reports


def _write(content: bytes, file: BinaryIO) -> None:
    file.write(content)


def _lowered(request: Request, program: ExportedProgram, spec: CompileSpec, steps: Steps) -> Report:
    """Lower under the request's policy, and write the ``.pte`` if it has a name."""
    partitioner = SafeArmPartitioner(
        spec, non_fuseable=cast("Policy", request.policy), strict=request.strict, repro_dir=request.repro_dir,
        verify=request.verify,
    )  # fmt: skip
    partitioner.during_proof = partial(_proof, steps)
    under = f", --non-fuseable {request.policy}" if request.compare else ""
    with steps.step(f"lower for {request.target}{under}"), demotions_noted(steps):
        edge = to_edge_transform_and_lower(
            program, partitioner=[partitioner], compile_config=EdgeCompileConfig(_check_ir_validity=False)
        )
        lowered = edge.to_executorch(config=ExecutorchBackendConfig(extract_delegate_segments=False))
    if request.output is not None:
        with steps.step(f"write {request.output}"):
            write_output(request.output, lowered.write_to_file)
    if partitioner.report is None:
        raise InternalError("the partitioner was never asked")
    return partitioner.report


def _proof(steps: Steps, cost: int, seconds: float, runs: int) -> AbstractContextManager[Callable[[], None]]:
    """Show a verification: a bar that counts the sets of inputs, and says after the first what time is left."""
    size = f"{cost / 1e6:.0f} million MACs" if cost >= 1e6 else f"{cost} MACs"
    name = f"verify {size}, about {seconds:.0f} s"
    line = f"verify a delegate of {size}, about {seconds:.0f} s (--no-verify leaves it out)"
    return steps.part(name, runs, line if seconds >= LONG else "")


@contextmanager
def demotions_noted(steps: Steps) -> Iterator[None]:
    """Tell the user what was demoted, which the quiet would swallow; other warnings go their way."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DemotionWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, DemotionWarning):
            steps.note(f"Warning: {warning.message}")
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _compile_spec(request: Request) -> CompileSpec:
    if request.target.startswith("ethos-u"):
        # The system configuration and memory mode that ExecuTorch picks for the family.
        return EthosUCompileSpec(request.target)
    try:
        return (VgfCompileSpec if request.target == "vgf" else TosaCompileSpec)(request.profile.text)
    except ValueError as error:
        raise UsageError(f"profile {request.profile.text!r} is not known to this ExecuTorch: {error}") from error


def _quantise(program: ExportedProgram, spec: CompileSpec, samples: Samples, steps: Steps) -> ExportedProgram:
    quantizer = QUANTIZERS[type(spec)](spec)
    quantizer.set_global(get_symmetric_quantization_config())
    with steps.step(f"calibrate on {len(samples)} samples", total=len(samples)) as samples.advance:
        try:
            quantised = quantizer.quantize_with_submodules(program.module(check_guards=False), samples)
        except Exception as error:
            if samples.at is None:
                raise
            text = " ".join(str(error).split())[:200]
            raise UsageError(
                f"the model fails on calibration sample {samples.at}: {type(error).__name__}: {text}; check that sample"
            ) from error
        return torch.export.export(quantised, samples[0])
