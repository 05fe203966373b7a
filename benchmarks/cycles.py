"""What Vela estimates for MLPerf Tiny's nets and MobileNet-v2, each side with its own quantiser.

Both sides' graphs go through the same Vela with the same options, so that a difference is one of the graphs. The other
side is stock, or LiteRT's converter and quantiser with ``--litert``.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
from executorch.backends.arm.quantizer import EthosUQuantizer, get_symmetric_quantization_config
from executorch.exir import to_edge_transform_and_lower
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from benchmarks.nets import Net, mobilenet_v2
from benchmarks.proof_nets import NETS
from benchmarks.protocol import CONFIG
from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer

SIDES = {"stock": (EthosUQuantizer, EthosUPartitioner), "ours": (SafeEthosUQuantizer, SafeArmPartitioner)}
CONVERTER = Path(__file__).with_name("litert_int8.py")
#: Columns of Vela's summary by the names of the table.
COLUMNS = {
    "cycles": "cycles_total",
    "SRAM KiB": "sram_memory_used",
    "DRAM KiB": "dram_memory_used",
    "flash KiB": "off_chip_flash_memory_used",
}


def nets() -> dict[str, Callable[[], Net]]:
    """Return what makes each net."""
    tiny = {name: made for name, made in NETS.items() if name.startswith("tiny-")}
    return {**tiny, "mobilenet-v2": lambda: normalised(mobilenet_v2())}


def normalised(net: Net) -> Net:
    """Return a net whose batch norms have the statistics of the calibration samples.

    Without them random weights make the last blocks vanish: their codes are 0, and Vela stores hardly any weights.
    """
    model, inputs = net
    samples = calibration(inputs)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # The average of all that is seen.
    model.train()
    with torch.no_grad():
        model(*(torch.cat(each) for each in zip(*samples, strict=True)))
    return model.eval(), inputs


def in_channels_last(net: Net) -> Net:
    """Return a net with its images in the memory format that needs no transposition at the delegate's edge."""
    model, inputs = net
    laid_out = []
    for each in inputs:
        laid_out.append(each.to(memory_format=torch.channels_last) if each.ndim == 4 else each)
    return model, tuple(laid_out)


def calibration(inputs: tuple[torch.Tensor, ...]) -> list[tuple[torch.Tensor, ...]]:
    """Return four random samples, the same ones for every side."""
    torch.manual_seed(1)
    return [tuple(torch.randn_like(each) for each in inputs) for _ in range(4)]


def tosa_graphs(net: Net, target: str, side: str, folder: Path) -> list[Path]:
    """Lower a net through one side and return the TOSA graphs of its delegates."""
    model, inputs = net
    quantizer_class, partitioner_class = SIDES[side]
    spec = EthosUCompileSpec(target).dump_intermediate_artifacts_to(str(folder))
    quantizer = quantizer_class(spec)
    quantizer.set_global(get_symmetric_quantization_config())
    with torch.no_grad():
        prepared = prepare_pt2e(torch.export.export(model, inputs).module(check_guards=False), quantizer)
        for sample in calibration(inputs):
            prepared(*sample)
        quantised = convert_pt2e(prepared)
    program = torch.export.export(quantised, inputs)
    to_edge_transform_and_lower(program, partitioner=[partitioner_class(spec)], compile_config=CONFIG)
    return sorted(folder.glob("output_tag*.tosa"))


def tflite_graph(net: Net, interpreter: str, folder: Path) -> Path:
    """Let LiteRT's tools convert and quantise a net, and return the model they write."""
    model, inputs = net
    torch.export.save(torch.export.export(model, inputs), folder / "net.pt2")
    torch.save(calibration(inputs), folder / "samples.pt")
    subprocess.run([interpreter, str(CONVERTER), str(folder)], check=True, capture_output=True)
    return folder / "net.tflite"


def estimated(graph: Path, target: str) -> dict[str, float]:
    """Compile one TOSA graph or TFLite model with Vela and return the figures of its summary."""
    output = graph.parent / f"{graph.stem}-vela"
    flags = [flag for flag in EthosUCompileSpec(target).compiler_flags if not flag.startswith("--output-dir")]
    vela = Path(sys.executable).parent / "vela"
    command = [str(vela), *flags, f"--output-dir={output}", str(graph)]
    subprocess.run(command, check=True, capture_output=True)
    with next(output.glob("*_summary_*.csv")).open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: sum(float(row[column]) for row in rows) for name, column in COLUMNS.items()}


def measured(net: Net, target: str, side: str, litert: str = "") -> dict[str, float]:
    """Return the delegates of a net, and the sums of Vela's figures over them.

    Args:
        net: module and example inputs.
        target: an Ethos-U.
        side: of ``SIDES``; ignored with ``litert``.
        litert: interpreter of the lane ``litert``, if its tools make the graph.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graphs = [tflite_graph(net, litert, folder)] if litert else tosa_graphs(net, target, side, folder)
        figures = [estimated(graph, target) for graph in graphs]
    return {"delegates": len(graphs), **{name: sum(each[name] for each in figures) for name in COLUMNS}}


def beside(other: float, ours: float) -> str:
    """Return a cell: both figures, and their ratio where there is one."""
    both = f"{other:,.0f} → {ours:,.0f}"
    return f"{both} ({ours / other:.3f})" if other else both


def main() -> None:
    """Print a row for each net and target: the other side, ours, and ours ÷ the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="nets whose names contain this")
    parser.add_argument("--target", action="append", help="ethos-u55-128 and ethos-u85-256 by default")
    parser.add_argument("--litert", default="", metavar="PYTHON", help="of lane litert: its tools instead of stock")
    parser.add_argument("--channels-last", action="store_true", help="images in that memory format; only beside stock")
    asked = parser.parse_args()
    if asked.litert and asked.channels_last:
        parser.error("LiteRT's converter takes images in PyTorch's default memory format: leave out --channels-last")
    laid_out = in_channels_last if asked.channels_last else lambda net: net
    columns = ["delegates", *COLUMNS]
    print(f"| net | target | {' | '.join(columns)} |")
    print(f"|---|---|{'--:|' * len(columns)}")
    for name, made in nets().items():
        if asked.only not in name:
            continue
        for target in asked.target or ("ethos-u55-128", "ethos-u85-256"):
            other = measured(laid_out(made()), target, "stock", asked.litert)
            ours = measured(laid_out(made()), target, "ours")
            cells = [beside(other[each], ours[each]) for each in columns]
            print(f"| {name} | {target} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
