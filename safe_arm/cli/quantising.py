"""Quantise a float program on samples. Importing it loads torch and executorch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from executorch.backends.arm.quantizer import QuantizationConfig
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    TensorArgument,
)
from torch.fx import GraphModule

from safe_arm._compat.upstream import EthosUCompileSpec, TosaCompileSpec, VgfCompileSpec
from safe_arm.cli.calibration import ModelInput, match
from safe_arm.cli.integer_io import DEQUANTISE, QUANTISE
from safe_arm.cli.progress import Steps
from safe_arm.cli.request import Quantisation, Request
from safe_arm.core.errors import UsageError
from safe_arm.core.island import call_functions, op_name
from safe_arm.core.notes import write_note
from safe_arm.core.written import module_paths
from safe_arm.quantizer.annotation.left_float import REASON_KEY
from safe_arm.quantizer.safe_quantizers import (
    SafeEthosUQuantizer,
    SafeTOSAQuantizer,
    SafeVgfQuantizer,
)
from safe_arm.recipes import CLASSES
from safe_arm.report.numbers import counted
from safe_arm.tuning.applying import apply, config_of

CompileSpec: TypeAlias = EthosUCompileSpec | TosaCompileSpec | VgfCompileSpec
#: The positional arguments of the program's module.
Sample: TypeAlias = tuple[object, ...]
Quantizer: TypeAlias = SafeEthosUQuantizer | SafeTOSAQuantizer | SafeVgfQuantizer


@dataclass(frozen=True)
class Loaded:
    """A request, and what was read for it.

    Attributes:
        request: what was asked for.
        program: the model.
        samples: the calibration data; None if the model is not to be quantised.
        kept_float: the paths of the modules that are not quantised.
    """

    request: Request
    program: ExportedProgram
    samples: list[Sample] | None = None
    kept_float: tuple[str, ...] = ()


class _CountedSamples(list[Sample]):
    """Samples that advance a bar as they are iterated.

    Attributes:
        at: the index of the sample in use; None outside an iteration.
    """

    def __init__(self, samples: list[Sample], advance: Callable[[], None]) -> None:
        super().__init__(samples)
        self._advance = advance
        self.at: int | None = None

    def __iter__(self) -> Iterator[Sample]:
        for self.at, sample in enumerate(super().__iter__()):
            yield sample
            self._advance()
        self.at = None


def compile_spec(request: Request) -> CompileSpec:
    """Return the compile spec of a request's target.

    Raises:
        UsageError: its profile is not known.
    """
    if request.target.startswith("ethos-u"):
        options = dict(request.vela.given)  # ExecuTorch picks the others
        if "config" in options:
            options["config_ini"] = options.pop("config")
        return EthosUCompileSpec(request.target, **options)
    kind = VgfCompileSpec if request.target == "vgf" else TosaCompileSpec
    try:
        return kind(request.profile.text)
    except ValueError as error:
        raise UsageError(
            f"profile {request.profile.text!r} is not known to this ExecuTorch: {error}"
        ) from error


def quantizer_for(request: Request) -> Quantizer:
    """Return the quantiser of a request's target, without any configuration."""
    spec = compile_spec(request)
    *_, ours = CLASSES[type(spec)]
    quantizer: Quantizer = ours(spec)
    return quantizer


def samples_of(
    program: ExportedProgram, arrays: Mapping[str, np.ndarray], steps: Steps
) -> list[Sample]:
    """Match calibration arrays with a program's inputs, and say which dynamic shapes they fix.

    Raises:
        UsageError: they do not match.
    """
    inputs = inputs_of(program)
    ordered = match(arrays, inputs)
    for each, array in zip(inputs, ordered, strict=True):
        if None in each.shape:
            steps.note(
                f"Note: input {each.name!r} is dynamic; it is fixed to the samples' shape {array.shape[1:]}"
            )
    signature = inspect.signature(program.module(check_guards=False).forward)
    specs = _user_inputs(program)
    rows = zip(*ordered, strict=True)
    return [_arguments(program, specs, row, signature) for row in rows]


def inputs_of(program: ExportedProgram) -> list[ModelInput]:
    """Return the tensors that a program takes.

    Raises:
        UsageError: it takes none, or a number that is not fixed.
    """
    inputs = []
    for spec in _user_inputs(program):
        if not isinstance(spec.arg, ConstantArgument):
            inputs.append(_model_input(program, spec))
    if not inputs:
        raise UsageError(
            "the model has no tensor inputs, so it cannot be calibrated; export one that has"
        )
    return inputs


def _user_inputs(program: ExportedProgram) -> list[InputSpec]:
    specs = program.graph_signature.input_specs
    return [spec for spec in specs if spec.kind == InputKind.USER_INPUT]


def _model_input(program: ExportedProgram, spec: InputSpec) -> ModelInput:
    if not isinstance(spec.arg, TensorArgument):
        raise UsageError(
            f"input {spec.arg.name!r} of the model is a dynamic number; export it with a fixed one"
        )
    name = spec.arg.name
    (value,) = (n.meta["val"] for n in program.graph.nodes if n.name == name)
    shape: list[int | None] = []
    example = []
    for size in value.shape:
        is_fixed = isinstance(size, int)
        shape.append(size if is_fixed else None)
        example.append(size if is_fixed else size.node.hint)
    dtype = str(value.dtype).removeprefix("torch.")
    return ModelInput(name, tuple(shape), dtype, tuple(example))


def _arguments(
    program: ExportedProgram,
    specs: list[InputSpec],
    row: tuple[np.ndarray, ...],
    signature: inspect.Signature,
) -> tuple[object, ...]:
    """Put one sample's arrays and the model's constant inputs into the structure it was exported with."""
    arrays = iter(row)
    flat: list[object] = []
    for spec in specs:
        if isinstance(spec.arg, ConstantArgument):
            flat.append(spec.arg.value)
        else:
            flat.append(torch.from_numpy(np.asarray(next(arrays))))
    args, kwargs = torch.utils._pytree.tree_unflatten(flat, program.call_spec.in_spec)
    return signature.bind(*args, **kwargs).args


def calibrated(loaded: Loaded, steps: Steps) -> tuple[GraphModule, GraphModule | None]:
    """Quantise a program as the quantiser of its target does.

    Returns:
        The quantised graph, and the float graph that was calibrated; None for that if nothing is compared with it.

    Raises:
        UsageError: the model fails on a sample.
    """
    request = loaded.request
    program = loaded.program
    samples = loaded.samples or []
    quantizer = _configured(loaded, steps)
    number = len(samples)
    with steps.step(f"calibrate on {counted(number, 'sample')}", number) as advance:
        taken = _CountedSamples(samples, advance)
        try:
            module = quantizer.quantize_with_submodules(
                program.module(check_guards=False), taken
            )
        except Exception as error:
            if taken.at is None:
                raise
            text = " ".join(str(error).split())[:200]
            raise UsageError(
                f"the model fails on calibration sample {taken.at}: {type(error).__name__}: {text}; check that sample"
            ) from error
    _note_kept_float(module, loaded.kept_float)
    reference = quantizer.reference if request.accuracy else None
    return module, reference


def _configured(loaded: Loaded, steps: Steps) -> Quantizer:
    """Return the quantiser that does what a request says."""
    request = loaded.request
    quantizer = quantizer_for(request)
    asked = request.quantisation
    quantizer.keep_reference = request.accuracy
    quantizer.set_global(configuration(asked))
    if asked.recipe is not None:
        _apply(asked.recipe, quantizer, loaded.program, steps)
    for path in loaded.kept_float:
        quantizer.set_module_name(path, None)
    return quantizer


def configuration(asked: Quantisation) -> QuantizationConfig:
    """Return the configuration of all operators that a request asks for."""
    return config_of(asked.activations, not asked.per_tensor)


def _apply(
    path: Path, quantizer: Quantizer, program: ExportedProgram, steps: Steps
) -> None:
    """Quantise by a recipe, and say so if it was tuned for another target."""
    from safe_arm.tuning.recipe_file import read_recipe

    recipe = read_recipe(path)
    apply(recipe, quantizer, program.module(check_guards=False))
    spec = str(quantizer.tosa_spec)
    if spec != recipe.profile:
        steps.note(
            f"Note: {path} was tuned for {recipe.target}, {recipe.profile}, and this is {spec}: it may cost more"
        )


def _note_kept_float(module: GraphModule, paths: Sequence[str]) -> None:
    """Write on each operator of the modules that are not quantised why it is float, for the report."""
    if not paths:
        return
    for node in call_functions(module):
        if op_name(node) in (QUANTISE, DEQUANTISE):
            continue
        modules = module_paths(node)
        asked = [path for path in paths if path in modules]
        if asked:
            reason = f"--keep-float {asked[0] or 'all'}"
            write_note(node, REASON_KEY, reason)
