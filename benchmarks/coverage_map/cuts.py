"""One net for one target: what is in its delegates, what is outside, and why.

The backends are not called: what is counted is what the partitioner puts into delegates, before a trial lowering.
"""

from __future__ import annotations

import logging
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from unittest import mock

import torch
from executorch.backends.arm.ethosu import EthosUBackend, EthosUCompileSpec, EthosUPartitioner
from executorch.backends.arm.quantizer import (
    EthosUQuantizer,
    TOSAQuantizer,
    VgfQuantizer,
    get_symmetric_quantization_config,
)
from executorch.backends.arm.tosa.backend import TOSABackend
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.backends.arm.vgf import VgfBackend, VgfCompileSpec, VgfPartitioner
from executorch.exir.backend.backend_details import PreprocessResult
from torch.fx import Graph, Node

from benchmarks.architectures.beside_float import OutOfTime
from benchmarks.architectures.measure import quantised
from benchmarks.nets import Net
from benchmarks.protocol import lower
from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer, SafeTOSAQuantizer, SafeVgfQuantizer
from safe_arm._compat.loading import delegates
from safe_arm.core.macs import macs
from safe_arm.core.record import Report

OURS, STOCK = "ours", "stock"


@dataclass(frozen=True)
class Target:
    """A target: its compile spec, and stock's and our quantiser, and stock's partitioner."""

    spec: Callable[[], Any]
    quantizer: Any
    safe_quantizer: Any
    partitioner: Any


TARGETS = {
    "TOSA INT": Target(lambda: TosaCompileSpec("TOSA-1.0+INT"), TOSAQuantizer, SafeTOSAQuantizer, TOSAPartitioner),
    "VGF INT+FP": Target(lambda: VgfCompileSpec("TOSA-1.0+INT+FP"), VgfQuantizer, SafeVgfQuantizer, VgfPartitioner),
    "Ethos-U85": Target(
        lambda: EthosUCompileSpec("ethos-u85-256"), EthosUQuantizer, SafeEthosUQuantizer, EthosUPartitioner
    ),
    "Ethos-U55": Target(
        lambda: EthosUCompileSpec("ethos-u55-128"), EthosUQuantizer, SafeEthosUQuantizer, EthosUPartitioner
    ),
}


@dataclass(frozen=True)
class Cut:
    """How a net was cut for a target.

    Attributes:
        net, target, by: which, and by what: ``"ours"`` or ``"stock"``.
        failed: why there is no figure; empty if there are figures.
        delegates: how many.
        inside, operators: operators in delegates, and of the whole net; quantise and dequantise are not counted.
        outside: how many of each operator are outside, for each reason; stock gives none.
        macs, macs_inside: multiply-accumulates of the net, and in delegates.
        kernels: the operators that need a kernel on the CPU, quantise and dequantise among them.
        seconds: CPU time of quantising and partitioning.
    """

    net: str
    target: str
    by: str
    failed: str = ""
    delegates: int = 0
    inside: int = 0
    operators: int = 0
    outside: dict[str, dict[str, int]] = field(default_factory=dict)
    macs: int = 0
    macs_inside: int = 0
    kernels: list[str] = field(default_factory=list)
    seconds: float = 0.0


def cut(name: str, make: Callable[[], Net], target: str, by: str, limit: int) -> Cut:
    """Quantise a net and partition it; nothing is lowered or proven.

    Args:
        name: of the net.
        make: gives the net.
        target: one of ``TARGETS``.
        by: ``"ours"`` or ``"stock"``.
        limit: CPU seconds after which the net is given up.
    """
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    began = time.process_time()
    try:
        with _limited(limit):
            manager, report = _partitioned(make(), TARGETS[target], by)
            return _counted(name, target, by, manager, report, time.process_time() - began)
    except OutOfTime:
        return Cut(name, target, by, f"not partitioned within {limit} s of CPU time")
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return Cut(name, target, by, f"{type(error).__name__}: {lines[0]}"[:200])


def _partitioned(net: Net, target: Target, by: str) -> tuple[Any, Report | None]:
    model, inputs = net
    spec = target.spec()
    quantizer = (target.safe_quantizer if by == OURS else target.quantizer)(spec)
    quantizer.set_global(get_symmetric_quantization_config())
    graph_module = quantised(quantizer, model, inputs)
    program = torch.export.export(graph_module, inputs)
    if by == STOCK:
        with _without_backends():
            return lower(program, target.partitioner(spec)), None
    partitioner = SafeArmPartitioner(spec, non_fuseable="propagate", preflight=False)
    with _without_backends():
        manager = lower(program, partitioner)
    return manager, partitioner.report


@contextmanager
def _without_backends() -> Iterator[None]:
    """Let the backends give an empty delegate instead of lowering one."""
    empty = mock.Mock(return_value=PreprocessResult(b""))
    with (
        mock.patch.object(TOSABackend, "preprocess", empty),
        mock.patch.object(VgfBackend, "preprocess", empty),
        mock.patch.object(EthosUBackend, "preprocess", empty),
    ):
        yield


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Raise ``OutOfTime`` after so many CPU seconds of this process."""

    def out_of_time(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGPROF, out_of_time)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _counted(name: str, target: str, by: str, manager: Any, report: Report | None, seconds: float) -> Cut:
    graph_module = manager.exported_program().graph_module
    reasons = {} if report is None else {verdict.name: verdict.reason for verdict in report.fallbacks}
    outside: dict[str, Counter[str]] = {}
    kernels = set()
    for node in _operators(graph_module.graph):
        operator = _operator(node)
        kernels.add(operator)
        if not operator.startswith("quantized_decomposed"):
            outside.setdefault(operator, Counter())[reasons.get(node.name, "")] += 1
    modules = [module.original_module for _, module in delegates(graph_module)]
    inside = [node for module in modules for node in _operators(module.graph)]
    counted = sum(not _operator(node).startswith("quantized_decomposed") for node in inside)
    macs_inside = sum(macs(node) for node in inside)
    macs_outside = sum(macs(node) for node in _operators(graph_module.graph))
    total = counted + sum(count.total() for count in outside.values())
    return Cut(
        name, target, by, "", len(modules), counted, total, {key: dict(value) for key, value in outside.items()},
        macs_inside + macs_outside, macs_inside, sorted(kernels), round(seconds, 1),
    )  # fmt: skip


def _operators(graph: Graph) -> list[Node]:
    """Return the nodes that call an operator; picking an output and calling a delegate are none."""
    return [node for node in graph.nodes if node.op == "call_function" and hasattr(node.target, "_op")]


def _operator(node: Node) -> str:
    return str(node.target._op if hasattr(node.target, "_op") else node.target)
