"""Export a net with stock's classes and verify the delegates. Importing it loads torch and executorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from executorch.exir import (
    EdgeCompileConfig,
    EdgeProgramManager,
    to_edge_transform_and_lower,
)
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm import seams
from safe_arm._compat.loading import delegate_name, delegates
from safe_arm._compat.upstream import ArmCompileSpec
from safe_arm.cli.integer_io import take_integers
from safe_arm.cli.pipeline import LoweringProgress
from safe_arm.cli.progress import Steps
from safe_arm.cli.quantising import Loaded, compile_spec, configuration
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.failure import quoted
from safe_arm.core.island import call_functions, op_name
from safe_arm.core.lowering_record import Lowering, lowering
from safe_arm.core.macs import macs
from safe_arm.core.names import shown
from safe_arm.core.written import module_path, written
from safe_arm.partitioner.proving import Prover
from safe_arm.recipes import CLASSES
from safe_arm.report.stock_column import StockResult, StockVerdict
from safe_arm.safe_partitioner import DEFAULT_DEVICE, VERIFY_BUDGET
from safe_arm.verification.delegate import Delegate
from safe_arm.verification.devices import device as device_of
from safe_arm.verification.proof import Proof

#: The name of a delegate in reports, and its module.
StockDelegate: TypeAlias = tuple[str, LoweredBackendModule]
#: Seconds that one run of Vela, model-converter or the reference model may take.
TIME_LIMIT = 600.0
_QUANTISERS = "quantized_decomposed::"


def stock_result(source: Loaded, steps: Steps) -> StockResult:
    """Export a net as a script with stock's classes does, and verify the delegates; write nothing.

    Stock runs unchanged, except that Vela and model-converter have a time limit. An exception is its result.

    Args:
        source: the request and its net, loaded for this call alone: stock may write to the weights.
        steps: shows the progress.
    """
    request = source.request
    with steps.step("quantise with stock") if source.samples else nullcontext():
        program = attempted(_quantised, source)
    if isinstance(program, Caught):
        return _crash("quantise", program)
    seams.install()
    with (
        steps.step(f"lower for {request.target} with stock"),
        lowering(Lowering(time_limit=TIME_LIMIT)) as record,
    ):
        edge = attempted(_lowered, program, compile_spec(request))
        if isinstance(edge, Caught):
            return _crash(f"lower for {request.target}", edge)
        modules = [
            (delegate_name(name, module), module)
            for name, module in delegates(edge.exported_program().graph_module)
        ]
        result = _counted(edge.exported_program(), modules)
        written_program = attempted(edge.to_executorch)
    if isinstance(written_program, Caught):
        return _crash("write the program", written_program)
    if record.summaries:
        cycles = sum(summary.cycles for summary in record.summaries)
        result = replace(result, vela_cycles=cycles)
    if not request.verify:
        return result
    with steps.step("verify stock's delegates"):
        return _verified(modules, record.flatbuffers, result, LoweringProgress(steps))


def _crash(step: str, caught: Caught) -> StockResult:
    return StockResult("crashes", f"cannot {step}: {quoted(caught.root)}")


def _quantised(source: Loaded) -> ExportedProgram:
    """Quantise a net with stock's quantiser if there are samples."""
    program = source.program
    request = source.request
    if source.samples:
        spec = compile_spec(request)
        _, stock, _ = CLASSES[type(spec)]
        quantizer: Any = stock(spec)
        quantizer.set_global(configuration(request.quantisation))
        for path in source.kept_float:
            quantizer.set_module_name(path, None)
        # Public until 1.2, private from 1.3 on.
        quantise = getattr(quantizer, "_quantize_with_submodules", None)
        quantise = quantise or quantizer.quantize_with_submodules
        module = quantise(program.module(check_guards=False), source.samples)
        program = torch.export.export(module, source.samples[0])
    if request.integer_io:
        take_integers(program)
    return program


def _lowered(program: ExportedProgram, spec: ArmCompileSpec) -> EdgeProgramManager:
    stock, *_ = CLASSES[type(spec)]
    partitioner: Any = stock(spec)
    return to_edge_transform_and_lower(
        program,
        partitioner=[partitioner],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )


def _counted(program: ExportedProgram, modules: Sequence[StockDelegate]) -> StockResult:
    """Return how much of a lowered program is delegated."""
    inside: list[Node] = []
    for _, module in modules:
        inside += call_functions(module.original_module.graph_module)
    outside = list(call_functions(program.graph_module))
    delegated = _operators(inside)
    operators = delegated + _operators(outside)
    macs_delegated = sum(map(macs, inside))
    all_macs = macs_delegated + sum(map(macs, outside))
    share = delegated / operators if operators else 1.0
    if all_macs:
        share = macs_delegated / all_macs
    return StockResult(
        "not verified",
        delegates=len(modules),
        operators=operators,
        operators_delegated=delegated,
        share_delegated=share,
    )


def _operators(nodes: Sequence[Node]) -> int:
    """Return how many nodes compute."""
    not_computing = (_QUANTISERS, "higher_order::executorch_call")
    names = map(op_name, nodes)
    return sum(bool(name) and not name.startswith(not_computing) for name in names)


def _verified(
    modules: Sequence[StockDelegate],
    flatbuffers: Sequence[bytes],
    result: StockResult,
    listener: LoweringProgress,
) -> StockResult:
    """Run delegates in the reference model, as safe_arm's are, and return the result with the verdict."""
    if len(flatbuffers) != len(modules):
        return replace(result, reasons=("not every delegate has a TOSA graph",))
    proofs = []
    reasons = []
    with device_of(DEFAULT_DEVICE).opened(TIME_LIMIT) as runner:
        prover = Prover(True, VERIFY_BUDGET, runner=runner, listener=listener)
        for (name, module), flatbuffer in zip(modules, flatbuffers, strict=True):
            program = module.original_module
            state = {**program.constants, **program.state_dict}
            delegate = Delegate(flatbuffer, program, state, {}, True)
            proof = prover.prove(delegate, real=True)
            proofs.append(proof)
            reasons += [f"{name}: {text}" for text in _reasons(proof, program)]
    verdict: StockVerdict = "not verified"
    if any(proof.wrong for proof in proofs):
        verdict = "wrong"
    elif all(proof.verified for proof in proofs):
        verdict = "verified"
    return replace(
        result,
        verdict=verdict,
        verified=sum(proof.verified for proof in proofs),
        codes_off=_codes_off(proofs),
        reasons=tuple(reasons),
    )


def _reasons(proof: Proof, program: ExportedProgram) -> Iterator[str]:
    """Yield why a delegate is wrong or not verified, with the operators to blame."""
    if not proof.culprits:
        if proof.reason:
            yield proof.reason
        return
    nodes = {node.name: node for node in call_functions(program.graph_module)}
    for culprit in proof.culprits:
        own = [nodes[name] for name in sorted(culprit.names) if name in nodes]
        named = [shown(op_name(n), written(n), module_path(n)) for n in own]
        operators = ", ".join(
            name for name in named if not name.startswith(_QUANTISERS)
        )
        yield f"{operators}: differs from {culprit.reference} by {culprit.distance}"


def _codes_off(proofs: Sequence[Proof]) -> float | None:
    """Return the largest difference; None if a delegate was not run, or has differences that are not in codes."""
    worst = 0.0
    for proof in proofs:
        if (not proof.culprits and not proof.verified) or proof.apart_unit != "codes":
            return None
        worst = max(worst, proof.apart_worst)
        for culprit in proof.culprits:
            if not culprit.distance.codes:
                return None
            worst = max(worst, culprit.distance.worst)
    return worst
