"""Programs with their bundles, as small as they can be."""

import contextlib
import io
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn as nn
from executorch.exir import ExecutorchBackendConfig
from lowering import lower, quantize
from small import Built, image

from safe_arm import SafeArmPartitioner
from safe_arm._compat.upstream import EthosUCompileSpec, TosaCompileSpec, VgfCompileSpec
from safe_arm.bundle.manifest import Manifest
from safe_arm.bundle.writing import ShippedGraphs, write_bundle

SPECS = {
    "tosa": lambda: TosaCompileSpec("TOSA-1.0+INT"),
    "float": lambda: TosaCompileSpec("TOSA-1.0+FP"),
    "vgf": lambda: VgfCompileSpec("TOSA-1.0+INT"),
    "ethos-u55-128": lambda: EthosUCompileSpec("ethos-u55-128"),
}


def two_delegates():
    """Two delegates, with an operator between them that no profile here takes."""
    torch.manual_seed(0)
    layers = {"first": nn.Conv2d(4, 4, 3, padding=1), "last": nn.Conv2d(4, 4, 1)}
    return Built(lambda m, x: m.last(torch.atan2(m.first(x) * 8, x)), **layers)


def one_softmax():
    """Nothing that is delegated when it is left float."""
    torch.manual_seed(0)
    return Built(lambda m, x: torch.softmax(m.linear(x), -1), linear=nn.Linear(8, 8))


@dataclass(frozen=True)
class Shipped:
    """A bundle in a directory of its own."""

    pte: Path
    manifest: Manifest

    def copied(self, folder: Path) -> Path:
        """Copy all its files; return the program's."""
        shutil.copytree(self.pte.parent, folder, dirs_exist_ok=True)
        return folder / self.pte.name


def shipped(target, module, folder, *, quantised=True, samples=None) -> Shipped:
    folder.mkdir(parents=True)
    inputs, spec, collected = image(), SPECS[target](), ShippedGraphs()
    graph = quantize(module.eval(), inputs, spec) if quantised else module.eval()
    program = torch.export.export(graph, inputs)
    partitioner = SafeArmPartitioner(spec, listener=collected)
    with contextlib.redirect_stdout(io.StringIO()):
        edge = lower(graph, inputs, partitioner)
    lowered = edge.to_executorch(config=ExecutorchBackendConfig(extract_delegate_segments=False))
    pte = folder / "net.pte"
    pte.write_bytes(lowered.buffer)
    given = None if samples is None else {"forward": samples}
    return Shipped(pte, write_bundle(pte, lowered, {"forward": program}, collected, partitioner.report, given))
