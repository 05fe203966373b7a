"""One architecture through stock and safe_arm: does it export, is it right, how many MACs are delegated."""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from torch.fx import GraphModule

from benchmarks.delegated_macs import shares
from benchmarks.nets import Net
from benchmarks.protocol import lower
from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer, verify

PROFILES = ("TOSA-1.0+INT", "TOSA-1.0+INT+FP")
STOCK = "stock"
POLICIES = ("reject", "propagate")


@dataclass(frozen=True)
class Result:
    """The result for one net.

    Attributes:
        net, profile, by: which, and by what: ``"stock"``, or the policy of ours.
        outcome: ``"right"``, ``"wrong"`` or ``"died"``.
        reason: why it is not right; empty if it is.
        macs, delegated, right: multiply-accumulates of the net, of its delegates, and of those that are right.
        delegates: how many.
        worst: the largest difference of an output from the quantised graph, in codes.
        demoted: operators that were demoted, each with its reason.
        verified: delegates that were proven while lowering, ours only.
        seconds: what lowering took, and verification while lowering.
    """

    net: str
    profile: str
    by: str
    outcome: str
    reason: str = ""
    macs: int = 0
    delegated: int = 0
    right: int = 0
    delegates: int = 0
    worst: float = 0.0
    demoted: list[str] = field(default_factory=list)
    verified: int = 0
    seconds: float = 0.0


def results(name: str, net: Net, profile: str, wanted: tuple[str, ...]) -> Iterator[Result]:
    """Lower a net as often as wanted, from one quantisation by stock and one by ours."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    model, inputs = net
    samples = [inputs, tuple(3 * x if x.is_floating_point() else x for x in inputs)]
    for quantizer_class, of_class in ((TOSAQuantizer, (STOCK,)), (SafeTOSAQuantizer, POLICIES)):
        chosen = [by for by in of_class if by in wanted]
        if not chosen:
            continue
        try:
            graph_module = quantised(quantiser(quantizer_class, profile), model, inputs)
        except Exception as error:
            yield from (Result(name, profile, by, "died", f"quantising: {_short(error)}") for by in chosen)
            continue
        for by in chosen:
            try:
                yield _lowered(name, profile, by, graph_module, inputs, samples)
            except Exception as error:
                yield Result(name, profile, by, "died", _short(error))


def quantiser(quantizer_class: Any, profile: str) -> Any:
    """Return a quantiser of a class, with the configuration of all nets."""
    quantizer = quantizer_class(TosaCompileSpec(profile))
    quantizer.set_global(get_symmetric_quantization_config())
    return quantizer


def quantised(quantizer: Any, model: torch.nn.Module, inputs: tuple[Any, ...]) -> GraphModule:
    """Export a net and quantise it, calibrated on its own inputs."""
    exported = torch.export.export(model, inputs).module(check_guards=False)
    take = getattr(quantizer, "quantize_with_submodules", None) or quantizer._quantize_with_submodules
    return take(exported, [inputs])


def _lowered(
    name: str, profile: str, by: str, graph_module: GraphModule, inputs: tuple[Any, ...], samples: list[Any]
) -> Result:
    spec, program = TosaCompileSpec(profile), torch.export.export(graph_module, inputs)
    ours = None if by == STOCK else SafeArmPartitioner(spec, non_fuseable=by, verify=True)
    began = time.process_time()
    manager = lower(program, ours or TOSAPartitioner(spec))
    seconds = time.process_time() - began
    report = None if ours is None else ours.report
    checked = verify(manager, samples, reference=graph_module)
    found = shares(manager.exported_program(), checked)
    return Result(
        name, profile, by, "right" if checked.verified else "wrong",
        next((f"{b.delegate}: {b.reason}"[:300] for b in checked.boundaries if b.reason), ""),
        found.all, found.delegated, found.right, len(checked.boundaries),
        max((gap.worst for gap in checked.outputs), default=0.0),
        [] if report is None else [f"{v.op}: {v.reason}"[:300] for v in report.demoted],
        0 if report is None else sum(v.verified for v in report.verifications), round(seconds, 1),
    )  # fmt: skip


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:300]


def as_json(result: Result) -> dict[str, Any]:
    """Return a result as it is written."""
    return asdict(result)


def rows_of(record: Path) -> list[dict[str, Any]]:
    """Return the lines of a record; none if there is no such file."""
    return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
