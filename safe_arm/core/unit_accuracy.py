"""The accuracy of a quantised net compared with the float net, unit by unit. Needs neither torch nor executorch."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Largest signal-to-noise ratio, in dB: it stands for no difference, and its negative for a lost signal.
EXACT_DB = 200.0
#: The key in ``node.meta["custom"]`` under which an operator bears the name of its unit.
UNIT_KEY = "safe_arm_unit"


@dataclass(frozen=True)
class UnitAccuracy:
    """The error of one quantised unit: of the operators between dequantise and quantise, or of a quantised input.

    Attributes:
        name: the operator, of the quantised graph, whose result is quantised.
        module: path of the innermost module its main operator was called in; empty for the model itself.
        op: its main operator, such as ``aten::conv2d``; empty for an input.
        cumulative_db: signal to quantisation noise of its result as the net runs, in dB.
        isolated_db: the same with everything before it in float: its weights and the steps of its result alone.
        saturated: share of its float values that lie outside the range of its codes, 0 to 1.
        used: share of that range which its float values span, 0 to 1.
        worst_channel: the channel with the lowest isolated ratio; None if it has no channels.
        worst_channel_db: that ratio.
        output_noise: noise this unit alone causes at the outputs, relative to their signal, to first order; None if
            no gradient leads there.
        nodes: names of its operators in the quantised graph, in graph order.
    """

    name: str
    module: str
    op: str
    cumulative_db: float
    isolated_db: float
    saturated: float
    used: float
    worst_channel: int | None = None
    worst_channel_db: float | None = None
    output_noise: float | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Accuracy:
    """The float net and the quantised one, compared on samples.

    Attributes:
        units: in graph order; nested graphs and operators that stay float have none.
        outputs_db: signal to noise of each float output over all samples, in dB.
        samples: number of samples compared.
        seconds: duration of the comparison.
        output_noise: noise at the outputs as measured, relative to their signal.
        unmeasured: number of units that have no counterpart in the float net, or no static range.
        worst_sample_db: the lowest ratio of a single sample at one float output, in dB; None if no output is float. A
            sample whose float output is 0 everywhere has no ratio.
        worst_sample: index of that sample among those given.
    """

    units: tuple[UnitAccuracy, ...]
    outputs_db: tuple[float, ...]
    samples: int
    seconds: float
    output_noise: float = 0.0
    unmeasured: int = 0
    worst_sample_db: float | None = None
    worst_sample: int = 0

    @property
    def worst_output_db(self) -> float | None:
        """The lowest ratio of the outputs; None if no output is float."""
        return min(self.outputs_db, default=None)

    @property
    def explained(self) -> float | None:
        """Noise at the outputs that the units' own errors sum up to, over what is measured; None if either is zero."""
        predicted = sum(unit.output_noise or 0.0 for unit in self.units)
        if not predicted or not self.output_noise:
            return None
        return predicted / self.output_noise

    @property
    def worst(self) -> tuple[UnitAccuracy, ...]:
        """The units, those with the most noise at the outputs first; those without a gradient by isolated ratio."""

        def badness(unit: UnitAccuracy) -> tuple[float, float]:
            return -(unit.output_noise or 0.0), unit.isolated_db

        return tuple(sorted(self.units, key=badness))


def decibel(signal: float, noise: float) -> float:
    """Return a ratio of powers in dB, cut off where there is no noise, or nothing but noise."""
    if not noise:
        return EXACT_DB
    if not math.isfinite(noise) or not signal:
        return -EXACT_DB
    return max(-EXACT_DB, min(EXACT_DB, 10 * math.log10(signal / noise)))
