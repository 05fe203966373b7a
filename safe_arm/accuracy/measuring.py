"""Compare the quantised net with the float net, unit by unit, on samples."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule

from safe_arm.accuracy.counterparts import counterparts
from safe_arm.accuracy.distances import (
    SignalDistance,
    UnitDistances,
    apart,
    finite,
    float_leaves,
    power,
)
from safe_arm.accuracy.loggers import ValueLogger, with_loggers
from safe_arm.accuracy.output_noise import OutputNoise
from safe_arm.accuracy.quantised_units import QuantisedUnit, quantised_units
from safe_arm.core.island import op_name
from safe_arm.core.notes import write_note
from safe_arm.core.unit_accuracy import (
    EXACT_DB,
    UNIT_KEY,
    Accuracy,
    UnitAccuracy,
    decibel,
)
from safe_arm.core.written import module_path

#: Number of samples that are compared at most, and at least. The first are also compared with the float net as given
#: (``quantizer.float_run``), which shows the same figures for them.
SAMPLES = 32
AT_LEAST = 2
#: Number of values in all units that limits the samples between the two.
VALUES = 10_000_000
#: Ending of the name of a unit for its value before it is quantised.
_EXACT = " exact"
#: Distance from its steps, as a share of one, below which a unit rounds nothing: it moves codes, or scales them.
_ON_STEPS = 1e-3


def measure(
    reference: ExportedProgram | GraphModule,
    quantised: GraphModule,
    samples: Sequence[tuple[object, ...]],
    limit: int = SAMPLES,
) -> Accuracy:
    """Compare a quantised net with its float net, unit by unit.

    Args:
        reference: the float net: the graph that a safe quantiser keeps (``keep_reference``), whose operators are
            those of the quantised graph, or the exported program, in which operators that a quantiser decomposes have
            no units.
        quantised: the converted graph. Neither is changed.
        samples: positional arguments of the nets.
        limit: maximum number of compared samples, spread evenly over the first 32 or over as many as this if it is
            more; for a large net fewer, at least two.

    Returns:
        The units in graph order, with the cost of each.
    """
    start = time.perf_counter()
    floats = reference
    if isinstance(floats, ExportedProgram):
        floats = floats.module(check_guards=False)
    units = list(quantised_units(quantised))
    paired = counterparts(units, floats)
    measured = [unit for unit in units if unit.source.name in paired]
    size = max(1, sum(unit.size for unit in measured))
    number = max(min(limit, AT_LEAST), min(limit, VALUES // size))
    considered = min(len(samples), max(limit, SAMPLES))
    chosen = _spread(considered, number)
    taken = [samples[index] for index in chosen]
    nets = _Nets(floats, quantised, measured, paired)
    for sample in taken:
        nets.compare(sample)
    noise = OutputNoise(floats, paired, VALUES // (size * max(1, len(taken))))
    for sample, errors in zip(taken, nets.errors, strict=True):
        noise.add(sample, errors)
    at_outputs = noise.of_units
    outputs = [each.db for each in nets.outputs if each.signal or each.noise]
    worst = 0
    worst_db = None
    if nets.samples_db:
        lowest = min(nets.samples_db)
        worst = chosen[nets.samples_db.index(lowest)]
        worst_db = min(lowest, *outputs) if outputs else None
    return Accuracy(
        units=tuple(
            _accuracy(unit, nets.distances[unit.source.name], at_outputs)
            for unit in measured
        ),
        outputs_db=tuple(outputs),
        samples=len(chosen),
        seconds=time.perf_counter() - start,
        output_noise=nets.output_noise,
        unmeasured=len(units) - len(measured),
        worst_sample_db=worst_db,
        worst_sample=worst,
    )


def _spread(samples: int, number: int) -> list[int]:
    """Return the indices of so many samples, spread evenly."""
    number = min(number, samples)
    return [index * samples // number for index in range(number)]


def tag_units(quantised: GraphModule) -> None:
    """Write on each operator of a converted graph, its quantise node included, which unit it is of; export keeps it."""
    for unit in quantised_units(quantised):
        quantise = unit.dequantised[0].all_input_nodes[0]
        for node in (*unit.nodes, quantise):
            write_note(node, UNIT_KEY, unit.source.name)


class _Nets:
    """The float net, the quantised one, and one in which each unit reads float values."""

    def __init__(
        self,
        reference: GraphModule,
        quantised: GraphModule,
        units: Sequence[QuantisedUnit],
        paired: Mapping[str, str],
    ) -> None:
        self._scales: dict[str, float] = {}
        self.distances: dict[str, UnitDistances] = {}
        float_places = {}
        whole_places = {}
        alone_places = {}
        for unit in units:
            name = unit.source.name
            self._scales[name] = unit.qparams.scale
            self.distances[name] = UnitDistances(unit.qparams, unit.channel_axis)
            dequantised = [node.name for node in unit.dequantised]
            float_places[name] = [paired[name]]
            whole_places[name] = dequantised[:1]
            whole_places[f"{name}{_EXACT}"] = [name]
            alone_places[name] = dequantised
        self._float = with_loggers(reference, float_places, ValueLogger)
        self._whole = with_loggers(quantised, whole_places, ValueLogger)
        self._alone = with_loggers(quantised, alone_places, ValueLogger)
        self.outputs: list[SignalDistance] = []
        self.errors: list[dict[str, Tensor]] = []
        self.samples_db: list[float] = []

    @torch.no_grad()
    def compare(self, sample: tuple[object, ...]) -> None:
        """Run the three nets on one sample."""
        float_net, floats = self._float
        whole_net, whole = self._whole
        alone_net, alone = self._alone
        wanted = float_leaves(float_net(*sample))
        got = float_leaves(whole_net(*sample))
        for name, logger in alone.items():
            logger.substitute = floats[name].value
        alone_net(*sample)
        errors: dict[str, Tensor] = {}
        for name, distances in self.distances.items():
            value = floats[name].value
            running = whole[name].value
            rounded = running - whole[f"{name}{_EXACT}"].value
            on_steps = _ON_STEPS * self._scales[name]
            if not rounded.numel() or rounded.abs().max().item() < on_steps:
                distances.add(value, running, None)
                continue
            own = alone[name].value
            distances.add(value, running, own)
            exact, quantised = finite(value, own)
            errors[name] = quantised - exact
        self.errors.append(errors)
        self._compare_outputs(wanted, got)

    def _compare_outputs(self, wanted: Sequence[Tensor], got: Sequence[Tensor]) -> None:
        self.outputs = self.outputs or [SignalDistance() for _ in wanted]
        lowest = EXACT_DB
        for distance, *pair in zip(self.outputs, wanted, got, strict=True):
            exact, quantised = finite(*pair)
            signal = power(exact)
            noise = apart(exact, quantised)
            distance.add(signal, noise)
            if signal:
                lowest = min(lowest, decibel(signal, noise))
        self.samples_db.append(lowest)

    @property
    def output_noise(self) -> float:
        """Noise over signal, summed over the outputs."""
        return sum(each.noise / each.signal for each in self.outputs if each.signal)


def _accuracy(
    unit: QuantisedUnit,
    distances: UnitDistances,
    at_outputs: Mapping[str, float],
) -> UnitAccuracy:
    channel, channel_db = distances.worst_channel
    return UnitAccuracy(
        name=unit.source.name,
        module=module_path(unit.main),
        op=op_name(unit.main),
        cumulative_db=distances.cumulative.db,
        isolated_db=distances.isolated.db,
        saturated=distances.saturated,
        used=distances.used,
        worst_channel=channel,
        worst_channel_db=channel_db,
        output_noise=at_outputs.get(unit.source.name),
        nodes=tuple(node.name for node in unit.nodes),
    )
