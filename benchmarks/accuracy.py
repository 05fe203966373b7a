"""How good eight nets are once quantised, whether their units explain it, and what finding that out costs.

python -m benchmarks.accuracy [--net NAME ...] [--page docs/accuracy.md]

Each is quantised to int8 on one set of samples, compared with its float self on others, and lowered and proven for
TOSA. The U-Net has trained weights and photographs; the other nets have random weights, and normal inputs.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import torch
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

from benchmarks.architectures import by_hand
from benchmarks.proof_nets import NETS
from demo.photos import calibration, patches, with_noise
from demo.unet import trained
from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm._compat.upstream import TosaCompileSpec
from safe_arm.accuracy import Accuracy, measure, tag_units
from safe_arm.report.accuracy_text import decibels, share_of_noise, unit_name

PROFILE = "TOSA-1.0+INT"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
#: By name in the table, how to make a net with an input; None for the demo's trained U-Net.
ROWS: dict[str, Callable[[], tuple[torch.nn.Module, tuple[torch.Tensor, ...]]] | None] = {
    "U-Net denoiser": None,
    "MobileNet-v2": NETS["mobilenet-v2"],
    "ViT block": NETS["vit-block"],
    "GRU": by_hand.NETS["gru"],
    "Tiny: autoencoder": NETS["tiny-autoencoder"],
    "Tiny: DS-CNN": NETS["tiny-ds-cnn"],
    "Tiny: MobileNet-v1": NETS["tiny-mobilenet-v1"],
    "Tiny: ResNet-8": NETS["tiny-resnet8"],
}
Samples = list[tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        net: its name.
        accuracy: what was measured.
        worst: what a user calls the unit that costs the outputs most.
        export_seconds: quantising, exporting, lowering and proving, without the comparison.
    """

    net: str
    accuracy: Accuracy
    worst: str
    export_seconds: float

    @property
    def cells(self) -> tuple[str, ...]:
        """The line, cell by cell."""
        found = self.accuracy
        first = found.worst[0]
        sums = "unknown" if found.explained is None else f"{found.explained:.2f}"
        share = 100 * found.seconds / self.export_seconds
        return (
            self.net, str(len(found.units)), decibels(found.worst_output_db or 0.0), sums,
            f"{self.worst}, {share_of_noise(first, found)}", decibels(first.isolated_db),
            f"{found.seconds:.1f} s of {self.export_seconds:.1f} s", f"{share:.0f} %",
        )  # fmt: skip


HEAD = ("net", "units", "output", "sum of the units / noise", "worst unit, its share", "it alone", "cost", "")


@click.command()
@click.option("--net", "nets", multiple=True, type=click.Choice(list(ROWS)), help="Measure this one; all if none is.")
@click.option("--page", type=click.Path(path_type=Path), help="Write the table between the page's markers.")
def main(nets: tuple[str, ...], page: Path | None) -> None:
    """Measure, and print the table in Markdown."""
    warnings.simplefilter("ignore")
    os.environ["SAFE_ARM_PROOF_CACHE"] = "0"
    _row(*_samples("ViT block"), "warm-up")
    lines = [HEAD, ("---",) * len(HEAD)]
    for name in nets or ROWS:
        lines.append(_row(*_samples(name), name).cells)
        click.echo(" | ".join(lines[-1]), err=True)
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    click.echo(table)
    if page is not None:
        text = page.read_text()
        page.write_text(re.sub(f"{BEGIN}.*{END}", f"{BEGIN}\n{table}\n{END}", text, flags=re.DOTALL))


def _samples(name: str) -> tuple[torch.nn.Module, Samples, Samples]:
    """Return a net, what it is calibrated on, and what it is compared on."""
    make, generator = ROWS[name], torch.Generator().manual_seed(2)
    if make is None:
        tiles = calibration()
        others = with_noise(patches(8, (tiles[0].shape[-2], tiles[0].shape[-1]), generator), generator)
        return trained(), [(tile,) for tile in tiles], [(each[None],) for each in others]
    net, example = make()
    drawn = [tuple(torch.randn(each.shape, generator=generator) for each in example) for _ in range(40)]
    return net, drawn[:32], drawn[32:]


def _row(net: torch.nn.Module, samples: Samples, others: Samples, name: str) -> Row:
    start = time.perf_counter()
    program = torch.export.export(net, samples[0])
    quantizer = SafeTOSAQuantizer(TosaCompileSpec(PROFILE))
    quantizer.set_global(get_symmetric_quantization_config())
    quantizer.keep_reference = True
    converted = quantizer.quantize_with_submodules(program.module(check_guards=False), samples)
    if quantizer.reference is None:
        raise RuntimeError("the quantiser kept no float graph")
    tag_units(converted)
    quantising = time.perf_counter() - start
    accuracy = measure(quantizer.reference, converted, others)
    start = time.perf_counter()
    partitioner = SafeArmPartitioner(TosaCompileSpec(PROFILE), non_fuseable="propagate")
    config = EdgeCompileConfig(_check_ir_validity=False)
    exported = torch.export.export(converted, samples[0])
    to_edge_transform_and_lower(exported, partitioner=[partitioner], compile_config=config).to_executorch()
    seconds = quantising + time.perf_counter() - start
    return Row(name, accuracy, unit_name(accuracy.worst[0], partitioner.report), seconds)


if __name__ == "__main__":
    main()
