"""Which observer, and weights per channel or per tensor: what each setting costs or gains beside stock's default.

python -m benchmarks.quality.settings [--only '^(b|d|e|f)/'] [--write docs/quality-settings.md]
"""

from __future__ import annotations

import logging
import math
import re
import statistics
import warnings
from collections.abc import Sequence
from pathlib import Path

import click
import torch
from executorch.backends.arm.quantizer import QuantizationConfig
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from benchmarks.quality.judge import PROFILE, Judge
from benchmarks.quality.rows import ENTRIES
from benchmarks.quality.subjects import LeftOut
from safe_arm import SafeTOSAQuantizer
from safe_arm.tuning.applying import config_of

DEFAULT = "histogram, per channel"
SETTINGS: dict[str, QuantizationConfig] = {
    DEFAULT: config_of(8),
    "histogram, per tensor": config_of(8, per_channel=False),
    "minimum and maximum, per channel": config_of(8, observer="minmax"),
    "moving average, per channel": config_of(8, observer="average"),
}
#: A ratio over this many dB is as good as exact.
_CAP = 60.0


def ratio(judge: Judge, config: QuantizationConfig) -> float:
    """Return the signal to noise ratio of a net that the safe quantiser quantised with a config, in dB."""
    quantizer = SafeTOSAQuantizer(TosaCompileSpec(PROFILE))
    quantizer.set_global(config)
    with torch.no_grad():
        prepared = prepare_pt2e(judge.exported.module(check_guards=False), quantizer)
        for sample in judge.calibration:
            prepared(*(value.clone() for value in sample))
        return min(_CAP, judge.ratio(convert_pt2e(prepared)))


def gains(pattern: str) -> dict[str, list[float]]:
    """Return by how many dB each setting is better than the default, a figure for each row whose name matches."""
    found: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for entry in ENTRIES:
        if re.search(pattern, entry.name) is None:
            continue
        try:
            judge = Judge(entry.make())
            ratios = {name: ratio(judge, config) for name, config in SETTINGS.items()}
        except LeftOut:
            continue
        except Exception as error:
            click.echo(f"{entry.name}: {type(error).__name__}", err=True)
            continue
        for name, value in ratios.items():
            gain = value - ratios[DEFAULT]
            found[name].append(gain if math.isfinite(gain) else 0.0)
        click.echo(f"{entry.name}: " + ", ".join(f"{value:.1f}" for value in ratios.values()), err=True)
    return found


def table(found: dict[str, list[float]]) -> str:
    """Return the settings as a table of Markdown."""
    lines = [
        "| setting | nets | median | mean | better by 0.5 dB | worse by 0.5 dB | worst |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines.extend(_row(name, values) for name, values in found.items() if name != DEFAULT and values)
    return "\n".join(lines) + "\n"


def _row(name: str, values: Sequence[float]) -> str:
    better = sum(value >= 0.5 for value in values)
    worse = sum(value <= -0.5 for value in values)
    middle, mean = statistics.median(values), statistics.fmean(values)
    return f"| {name} | {len(values)} | {middle:+.1f} | {mean:+.1f} | {better} | {worse} | {min(values):+.1f} |"


@click.command()
@click.option("--only", default="^(b|d|e|f)/", show_default=True, metavar="PATTERN", help="Rows of `make quality`.")
@click.option("--write", type=click.Path(path_type=Path), help="Write the table.")
def main(only: str, write: Path | None) -> None:
    """Print a table of what each setting gains beside the default."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    text = table(gains(only))
    click.echo(text)
    if write is not None:
        write.write_text(text)


if __name__ == "__main__":
    main()
