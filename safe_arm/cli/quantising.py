"""A float program quantised on samples. Importing it loads torch and executorch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from executorch.backends.arm.quantizer import (
    TOSAQuantizer,
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
)
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
from safe_arm.cli.request import Quantisation
from safe_arm.core.errors import UsageError
from safe_arm.core.island import call_functions, op_name
from safe_arm.quantizer.left_float import REASON_KEY
from safe_arm.quantizer.safe_quantizers import (
    SafeEthosUQuantizer,
    SafeTOSAQuantizer,
    SafeVgfQuantizer,
)

CompileSpec: TypeAlias = EthosUCompileSpec | TosaCompileSpec | VgfCompileSpec
QUANTIZERS = {
    EthosUCompileSpec: SafeEthosUQuantizer,
    TosaCompileSpec: SafeTOSAQuantizer,
    VgfCompileSpec: SafeVgfQuantizer,
}


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


def samples_of(
    program: ExportedProgram, arrays: Mapping[str, np.ndarray], steps: Steps
) -> Samples:
    """Match calibration arrays with a program's inputs, and say which dynamic shapes they fix.

    Returns:
        Samples: for each sample the positional arguments of the program's module.

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
    return Samples(
        _arguments(program, specs, row, signature) for row in zip(*ordered, strict=True)
    )


def inputs_of(program: ExportedProgram) -> list[ModelInput]:
    """Return the tensors that a program takes.

    Raises:
        UsageError: it takes none, or a number that is not fixed.
    """
    inputs = [
        _model_input(program, s)
        for s in _user_inputs(program)
        if not isinstance(s.arg, ConstantArgument)
    ]
    if not inputs:
        raise UsageError(
            "the model has no tensor inputs, so it cannot be calibrated; export one that has"
        )
    return inputs


def _user_inputs(program: ExportedProgram) -> list[InputSpec]:
    return [
        spec
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.USER_INPUT
    ]


def _model_input(program: ExportedProgram, spec: InputSpec) -> ModelInput:
    if not isinstance(spec.arg, TensorArgument):
        raise UsageError(
            f"input {spec.arg.name!r} of the model is a dynamic number; export it with a fixed one"
        )
    value = next(
        node for node in program.graph.nodes if node.name == spec.arg.name
    ).meta["val"]
    shape = tuple(size if isinstance(size, int) else None for size in value.shape)
    example = tuple(
        size if isinstance(size, int) else size.node.hint for size in value.shape
    )
    return ModelInput(
        spec.arg.name, shape, str(value.dtype).removeprefix("torch."), example
    )


def _arguments(
    program: ExportedProgram,
    specs: list[InputSpec],
    row: tuple[np.ndarray, ...],
    signature: inspect.Signature,
) -> tuple[object, ...]:
    """Put one sample's arrays and the model's constant inputs into the structure it was exported with."""
    tensors = iter(row)
    flat = [
        spec.arg.value
        if isinstance(spec.arg, ConstantArgument)
        else torch.from_numpy(np.asarray(next(tensors)))
        for spec in specs
    ]
    args, kwargs = torch.utils._pytree.tree_unflatten(flat, program.call_spec.in_spec)
    return signature.bind(*args, **kwargs).args


def quantised(
    program: ExportedProgram,
    spec: CompileSpec,
    samples: Samples,
    asked: Quantisation,
    kept_float: Sequence[str],
    steps: Steps,
    compare: Callable[[GraphModule, GraphModule], None] | None = None,
) -> ExportedProgram:
    """Quantise a program as the quantiser of its compile spec does.

    Args:
        asked: bits of the activations, and how the weights are scaled.
        kept_float: the paths of the modules that are not quantised.
        compare: is handed the float graph that was calibrated, and what became of it; None to keep no float graph.

    Raises:
        UsageError: the model fails on a sample.
    """
    config = (
        get_symmetric_a16w8_quantization_config
        if asked.activations == 16
        else get_symmetric_quantization_config
    )
    quantizer = QUANTIZERS[type(spec)](spec)
    quantizer.keep_reference = compare is not None
    quantizer.set_global(config(is_per_channel=not asked.per_tensor))
    if asked.recipe is not None:
        _apply(asked.recipe, quantizer, program, steps)
    for path in kept_float:
        quantizer.set_module_name(path, None)
    with steps.step(
        f"calibrate on {len(samples)} samples", total=len(samples)
    ) as samples.advance:
        try:
            module = quantizer.quantize_with_submodules(
                program.module(check_guards=False), samples
            )
        except Exception as error:
            if samples.at is None:
                raise
            text = " ".join(str(error).split())[:200]
            raise UsageError(
                f"the model fails on calibration sample {samples.at}: {type(error).__name__}: {text}; check that sample"
            ) from error
        _tell_kept_float(module, kept_float)
        if compare is None or quantizer.reference is None:
            return torch.export.export(module, samples[0])
    compare(quantizer.reference, module)
    return torch.export.export(module, samples[0])


def _apply(
    path: Path, quantizer: TOSAQuantizer, program: ExportedProgram, steps: Steps
) -> None:
    """Quantise by a recipe, and say so if it was tuned for another target."""
    from safe_arm.tuning.applying import apply
    from safe_arm.tuning.recipe_file import read_recipe

    recipe = read_recipe(path)
    apply(recipe, quantizer, program.module(check_guards=False))
    spec = str(quantizer.tosa_spec)
    if spec != recipe.profile:
        steps.note(
            f"Note: {path} was tuned for {recipe.target}, {recipe.profile}, and this is {spec}: it may cost more"
        )


def _tell_kept_float(module: GraphModule, paths: Sequence[str]) -> None:
    """Write on each operator of the modules that are not quantised why it is float, for the report."""
    for node in call_functions(module) if paths else ():
        stack = [
            name.removeprefix("L['self'].")
            for name, _ in node.meta.get("nn_module_stack", {}).values()
        ]
        asked = next((path for path in paths if path in stack), None)
        if asked is not None and op_name(node) not in (QUANTISE, DEQUANTISE):
            node.meta["custom"] = {
                **(node.meta.get("custom") or {}),
                REASON_KEY: f"--keep-float {asked or 'all'}",
            }
