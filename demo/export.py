"""Quantise, lower and measure the network: one row for each target and way of exporting."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
from executorch.backends.arm.quantizer import (
    EthosUQuantizer,
    TOSAQuantizer,
    VgfQuantizer,
    get_symmetric_quantization_config,
)
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, to_edge_transform_and_lower
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch import Tensor
from torch.fx import GraphModule
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from demo.photos import calibration, held_out, psnr
from demo.unet import trained
from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer, SafeTOSAQuantizer, SafeVgfQuantizer
from safe_arm.core.macs import macs
from safe_arm.verification.double import evaluate_in_double
from safe_arm.verification.reference_model import run_lowered

NOISY = "noisy photograph"
FLOAT = "float in PyTorch"
INT8 = "int8 in PyTorch"
WAYS = ("stock", "safe_arm, reject", "safe_arm, propagate")


@dataclass(frozen=True)
class Target:
    """The names that an export script uses for a target: a compile spec, and the classes of stock and safe_arm.

    Attributes:
        tosa: the spec whose delegates the reference model runs: the target's own, or its twin for ``TOSABackend``;
            None where another row has run the same profile.
    """

    name: str
    spec: Any
    partitioner: Callable[[Any], Any]
    quantizer: Callable[[Any], Any]
    safe_quantizer: Callable[[Any], Any]
    tosa: TosaCompileSpec | None


@dataclass(frozen=True)
class Row:
    """One line of the table: how one way of exporting for one target, or a reference, turned out.

    Attributes:
        image, psnr: the held-out photograph as the lowered network denoises it in the reference model; None if not run.
        codes: the largest difference of the network's output from the PT2E graph's, in steps of its quantiser; what
            runs outside delegates is evaluated in double on both sides.
        delegates, macs: how many delegates, and their share of all multiply-accumulates.
        seconds, size: the time of ``to_edge_transform_and_lower``, and the bytes of the ``.pte`` of a compiled target.
        crash: the first line of the error that ended the export; else empty.
        wrong: whether that is more than a code, or a delegate is not proven. A value between two codes may
            go to either, and what follows with it.
    """

    target: str
    way: str
    image: Tensor | None = None
    psnr: float | None = None
    codes: int | None = None
    delegates: int = 0
    macs: float = 0.0
    seconds: float = 0.0
    size: int = 0
    crash: str = ""
    wrong: bool = False


def targets() -> list[Target]:
    """Return the three targets of the demo."""
    tosa, vgf = TosaCompileSpec("TOSA-1.0+INT+FP"), VgfCompileSpec("TOSA-1.0+INT+FP")
    memory = {"system_config": "Ethos_U55_High_End_Embedded", "memory_mode": "Shared_Sram"}
    u55 = EthosUCompileSpec(target="ethos-u55-128", **memory)
    u55_tosa = TosaCompileSpec(u55.tosa_spec)
    return [
        Target("TOSA INT+FP", tosa, TOSAPartitioner, TOSAQuantizer, SafeTOSAQuantizer, tosa),
        Target("VGF INT+FP", vgf, VgfPartitioner, VgfQuantizer, SafeVgfQuantizer, None),
        Target("Ethos-U55-128", u55, EthosUPartitioner, EthosUQuantizer, SafeEthosUQuantizer, u55_tosa),
    ]


def rows(out: Path) -> Iterator[Row]:
    """Export every way for every target, a row at a time.

    Args:
        out: the directory that gets the ``.pte`` files.
    """
    for target in targets():
        graphs: dict[bool, GraphModule] = {}
        for way in WAYS:
            try:
                yield _row(target, way, out, graphs)
            except Exception as error:  # A crash of the export is a result to show, not the demo's end.
                yield Row(target.name, way, crash=f"{type(error).__name__}: {error}".splitlines()[0])


def _row(target: Target, way: str, out: Path, graphs: dict[bool, GraphModule]) -> Row:
    stock = way == WAYS[0]
    if stock not in graphs:  # both policies lower what one quantiser made
        graphs[stock] = quantised((target.quantizer if stock else target.safe_quantizer)(target.spec))
    graph = copy.deepcopy(graphs[stock])

    def lower(
        spec: Any, stock_class: Callable[[Any], Any], verify: bool = True
    ) -> tuple[EdgeProgramManager, float, bool]:
        policy = way.removeprefix("safe_arm, ")
        partitioner = stock_class(spec) if stock else SafeArmPartitioner(spec, non_fuseable=policy, verify=verify)
        exported, config = torch.export.export(graph, (noisy,)), EdgeCompileConfig(_check_ir_validity=False)
        start = time.perf_counter()
        edge = to_edge_transform_and_lower(exported, partitioner=[partitioner], compile_config=config)
        seconds = time.perf_counter() - start
        proofs = () if stock else partitioner.report.verifications
        proven = bool(proofs) and all(each.verified for each in proofs)
        return edge, seconds, proven

    clean, noisy = held_out()
    edge, seconds, proven = lower(target.spec, target.partitioner)
    count, share = delegated(edge.exported_program())
    row = Row(target.name, way, delegates=count, macs=share, seconds=seconds)
    if target.tosa is not target.spec:
        name = f"{target.name} {way}.pte".lower().replace(",", "").replace(" ", "-")
        row = replace(row, size=_write(edge, out / name))
        if target.tosa is None:
            return row
        edge, _, _ = lower(target.tosa, TOSAPartitioner, verify=False)  # proven above, as it ships
    program, step = edge.exported_program(), output_step(graph)
    output = run_lowered(program, (noisy,))[0]
    evaluate_in_double(program.graph_module)
    evaluate_in_double(graph)
    apart = (run_lowered(program, (noisy,))[0] - graph(noisy)).abs().max()
    codes = round(float(apart) / step)
    wrong = codes > 1 or (codes == 1 and not proven)
    return replace(row, image=noisy - output, psnr=psnr(noisy - output, clean), codes=codes, wrong=wrong)


def references() -> list[Row]:
    """Return what the exports are compared with: no denoising, the float network and the quantised one in PyTorch."""
    clean, noisy = held_out()
    graph = quantised(TOSAQuantizer(TosaCompileSpec("TOSA-1.0+INT+FP")))
    with torch.no_grad():
        images = {NOISY: noisy, FLOAT: noisy - trained()(noisy), INT8: noisy - graph(noisy)}
    evaluate_in_double(graph)
    codes = {INT8: round(float((noisy - graph(noisy) - images[INT8]).abs().max()) / output_step(graph))}
    return [Row("reference", name, image, psnr(image, clean), codes.get(name)) for name, image in images.items()]


def quantised(quantizer: Any) -> GraphModule:
    """Return the trained network as a PT2E graph, per-channel int8, calibrated on the training photograph."""
    samples = calibration()
    quantizer.set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(trained(), (samples[0],)).module(check_guards=False), quantizer)
    with torch.no_grad():
        for sample in samples:
            prepared(sample)
    return convert_pt2e(prepared)


def delegated(program: Any) -> tuple[int, float]:
    """Return how many delegates a lowered program has and their share of the multiply-accumulates."""

    def total(graph_module: GraphModule) -> int:
        return sum(macs(node) for node in graph_module.graph.nodes if node.op == "call_function")

    modules = [m for _, m in program.graph_module.named_children() if isinstance(m, LoweredBackendModule)]
    inside = sum(total(module.original_module.graph_module) for module in modules)
    return len(modules), inside / (inside + total(program.graph_module))


def output_step(graph: GraphModule) -> float:
    """Return the scale of the dequantise node behind the graph's output."""
    return float(graph.graph.output_node().args[0][0].args[1])


def _write(edge: EdgeProgramManager, path: Path) -> int:
    beside = path.with_suffix(".partial")
    beside.write_bytes(edge.to_executorch().buffer)
    os.replace(beside, path)
    return path.stat().st_size
