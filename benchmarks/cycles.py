"""What Vela estimates for MLPerf Tiny's nets and MobileNet-v2, each side with its own quantiser.

Both sides' TOSA graphs go through the same Vela with the same options, so that a difference is one of the graphs.
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
    return {**tiny, "mobilenet-v2": mobilenet_v2}


def tosa_graphs(net: Net, target: str, side: str, folder: Path) -> list[Path]:
    """Lower a net through one side and return the TOSA graphs of its delegates."""
    model, inputs = net
    quantizer_class, partitioner_class = SIDES[side]
    spec = EthosUCompileSpec(target).dump_intermediate_artifacts_to(str(folder))
    quantizer = quantizer_class(spec)
    quantizer.set_global(get_symmetric_quantization_config())
    torch.manual_seed(1)
    with torch.no_grad():
        prepared = prepare_pt2e(torch.export.export(model, inputs).module(check_guards=False), quantizer)
        for _ in range(4):
            prepared(*(torch.randn_like(each) for each in inputs))
        quantised = convert_pt2e(prepared)
    program = torch.export.export(quantised, inputs)
    to_edge_transform_and_lower(program, partitioner=[partitioner_class(spec)], compile_config=CONFIG)
    return sorted(folder.glob("output_tag*.tosa"))


def estimated(graph: Path, target: str) -> dict[str, float]:
    """Compile one TOSA graph with Vela and return the figures of its summary."""
    output = graph.parent / f"{graph.stem}-vela"
    flags = [flag for flag in EthosUCompileSpec(target).compiler_flags if not flag.startswith("--output-dir")]
    vela = Path(sys.executable).parent / "vela"
    command = [str(vela), *flags, f"--output-dir={output}", str(graph)]
    subprocess.run(command, check=True, capture_output=True)
    with next(output.glob("*_summary_*.csv")).open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: sum(float(row[column]) for row in rows) for name, column in COLUMNS.items()}


def measured(net: Net, target: str, side: str) -> dict[str, float]:
    """Return the delegates of a net, and the sums of Vela's figures over them."""
    with tempfile.TemporaryDirectory() as folder:
        graphs = tosa_graphs(net, target, side, Path(folder))
        figures = [estimated(graph, target) for graph in graphs]
    return {"delegates": len(graphs), **{name: sum(each[name] for each in figures) for name in COLUMNS}}


def beside(stock: float, ours: float) -> str:
    """Return a cell: both figures, and their ratio where there is one."""
    both = f"{stock:,.0f} → {ours:,.0f}"
    return f"{both} ({ours / stock:.3f})" if stock else both


def main() -> None:
    """Print a row for each net and target: stock, ours, and ours ÷ stock."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="nets whose names contain this")
    parser.add_argument("--target", action="append", help="ethos-u55-128 and ethos-u85-256 by default")
    asked = parser.parse_args()
    columns = ["delegates", *COLUMNS]
    print(f"| net | target | {' | '.join(columns)} |")
    print(f"|---|---|{'--:|' * len(columns)}")
    for name, made in nets().items():
        if asked.only not in name:
            continue
        for target in asked.target or ("ethos-u55-128", "ethos-u85-256"):
            stock, ours = (measured(made(), target, side) for side in SIDES)
            cells = [beside(stock[each], ours[each]) for each in columns]
            print(f"| {name} | {target} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
