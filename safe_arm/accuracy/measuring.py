"""Float against quantised, unit by unit, on samples."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from safe_arm._compat.numeric_debugger import (
    NodeSourceDebugInfo,
    compare_results,
    extract_results_from_loggers,
)
from safe_arm.accuracy.counterparts import counterparts
from safe_arm.accuracy.distances import (
    Distance,
    UnitDistances,
    apart,
    decibel,
    finite,
    power,
)
from safe_arm.accuracy.loggers import CopyingLogger, handle, with_loggers
from safe_arm.accuracy.output_noise import OutputNoise
from safe_arm.accuracy.quantised_units import QuantisedUnit, quantised_units
from safe_arm.core.island import op_name
from safe_arm.core.unit_accuracy import EXACT_DB, UNIT_KEY, Accuracy, UnitAccuracy
from safe_arm.core.written import module_path

#: So many samples are compared at most, and at least.
SAMPLES, AT_LEAST = 8, 2
#: Between the two, as many as have so many values in all units.
VALUES = 10_000_000
#: What the name of a unit gets behind it for its value before it is quantised.
_EXACT = " exact"
#: A unit whose values lie so close to its steps, as a share of one, rounds nothing: it moves codes, or scales them.
_ON_STEPS = 1e-3


def measure(
    reference: ExportedProgram | GraphModule,
    quantised: GraphModule,
    samples: Sequence[tuple[object, ...]],
    limit: int = SAMPLES,
) -> Accuracy:
    """Compare a float net with what a quantiser made of it, unit by unit.

    Args:
        reference: the float net: the graph a safe quantiser keeps (``keep_reference``), whose operators are those of
            the quantised graph, or the exported program; of that the operators a quantiser decomposes have no units.
        quantised: the converted graph. Both stay as they are.
        samples: positional arguments of the nets.
        limit: how many samples are compared at most, spread evenly; of a large net fewer, two at least.

    Returns:
        The units in graph order, with what each costs.
    """
    start = time.perf_counter()
    floats = (
        reference.module(check_guards=False)
        if isinstance(reference, ExportedProgram)
        else reference
    )
    units = list(quantised_units(quantised))
    paired = counterparts(units, floats)
    measured = [unit for unit in units if unit.source.name in paired]
    nets = _Nets(floats, quantised, measured, paired)
    size = max(1, sum(unit.size for unit in measured))
    chosen = _spread(
        len(samples), max(min(limit, AT_LEAST), min(limit, VALUES // size))
    )
    taken = [samples[index] for index in chosen]
    for sample in taken:
        nets.compare(sample)
    noise = OutputNoise(floats, paired, VALUES // (size * max(1, len(taken))))
    for sample, errors in zip(taken, nets.errors, strict=True):
        noise.add(sample, errors)
    at_outputs, measured_noise = noise.of_units, nets.output_noise
    worst = min(
        range(len(taken)), key=lambda number: nets.samples_db[number], default=None
    )
    outputs = tuple(each.db for each in nets.outputs if each.signal or each.noise)
    return Accuracy(
        tuple(
            _accuracy(unit, nets.distances[unit.source.name], at_outputs)
            for unit in measured
        ),
        outputs,
        len(taken),
        time.perf_counter() - start,
        measured_noise,
        len(units) - len(measured),
        min(nets.samples_db[worst], *outputs)
        if worst is not None and outputs
        else None,
        chosen[worst] if worst is not None else 0,
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
            node.meta["custom"] = {
                **(node.meta.get("custom") or {}),
                UNIT_KEY: unit.source.name,
            }


class _Nets:
    """The float net, the quantised one, and one in which each unit reads float values."""

    def __init__(
        self,
        reference: GraphModule,
        quantised: GraphModule,
        units: Sequence[QuantisedUnit],
        paired: Mapping[str, str],
    ) -> None:
        dequantised = [
            (u.source.name, [node.name for node in u.dequantised]) for u in units
        ]
        floats = [(u.source.name, [paired[u.source.name]]) for u in units]
        self._float, _ = with_loggers(reference, floats, CopyingLogger)
        whole = [
            place
            for name, nodes in dequantised
            for place in ((name, nodes[:1]), (f"{name}{_EXACT}", [name]))
        ]
        self._whole, _ = with_loggers(quantised, whole, CopyingLogger)
        self._alone, self._loggers = with_loggers(quantised, dequantised, CopyingLogger)
        self._scales = {u.source.name: u.qparams.scale for u in units}
        self.distances = {
            u.source.name: UnitDistances(u.qparams, u.channel_axis) for u in units
        }
        self.outputs: list[Distance] = []
        self.errors: list[dict[str, torch.Tensor]] = []
        self.samples_db: list[float] = []

    @torch.no_grad()
    def compare(self, sample: tuple[object, ...]) -> None:
        """Run the three nets on one sample."""
        wanted, floats = _run(self._float, sample)
        got, whole = _run(self._whole, sample)
        for name, logger in self._loggers.items():
            logger.substitute = (
                floats[handle(name)][2][0] if handle(name) in floats else None
            )
        _, alone = _run(self._alone, sample)
        cumulative, isolated = (
            compare_results(floats, whole),
            compare_results(floats, alone),
        )
        errors: dict[str, torch.Tensor] = {}
        for name, distances in self.distances.items():
            rounded = whole[handle(name)][2][0] - whole[handle(f"{name}{_EXACT}")][2][0]
            moves = (
                not rounded.numel()
                or rounded.abs().max().item() < _ON_STEPS * self._scales[name]
            )
            own = isolated[handle(name)].results[0]
            distances.add(cumulative[handle(name)].results[0], None if moves else own)
            if not moves:
                errors[name] = torch.sub(*reversed(finite(own.ref, own.actual)))
        self.errors.append(errors)
        pairs = [
            finite(*each) for each in zip(_floats(wanted), _floats(got), strict=True)
        ]
        self.outputs = self.outputs or [Distance() for _ in pairs]
        lowest = EXACT_DB
        for distance, (of_float, of_quantised) in zip(self.outputs, pairs, strict=True):
            signal, noise = power(of_float), apart(of_float, of_quantised)
            distance.add(signal, noise)
            if signal:
                lowest = min(lowest, decibel(signal, noise))
        self.samples_db.append(lowest)

    @property
    def output_noise(self) -> float:
        """Noise over signal, summed over the outputs."""
        return sum(each.noise / each.signal for each in self.outputs if each.signal)


def _run(
    model: GraphModule, sample: tuple[object, ...]
) -> tuple[
    object, dict[NodeSourceDebugInfo, tuple[str | None, object, list[torch.Tensor]]]
]:
    """Run a net on one sample, and take out what its loggers kept."""
    for module in model.children():
        if isinstance(module, CopyingLogger):
            module.stats = []
    output = model(*sample)
    return output, extract_results_from_loggers(model)


def _floats(outputs: object) -> list[torch.Tensor]:
    flat = pytree.tree_leaves(outputs)
    return [
        each
        for each in flat
        if isinstance(each, torch.Tensor) and each.is_floating_point()
    ]


def _accuracy(
    unit: QuantisedUnit, found: UnitDistances, at_outputs: Mapping[str, float]
) -> UnitAccuracy:
    channel, channel_db = found.worst_channel
    return UnitAccuracy(
        name=unit.source.name,
        module=module_path(unit.main),
        op=op_name(unit.main),
        cumulative_db=found.cumulative.db,
        isolated_db=found.isolated.db,
        saturated=found.saturated,
        used=found.used,
        worst_channel=channel,
        worst_channel_db=channel_db,
        output_noise=at_outputs.get(unit.source.name),
        nodes=tuple(node.name for node in unit.nodes),
    )
