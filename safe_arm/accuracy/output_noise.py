"""The noise that the error of each unit causes at the outputs of the net, to first order.

For random signs v on the outputs, the gradient g of v times the outputs by a unit's value gives (g times e)^2, whose
mean over v is the noise that the unit's error e causes there (Hutchinson's estimator): a few backward passes give all
units at once, where running the net with each unit quantised alone would take a run for each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.fx import GraphModule

from safe_arm.accuracy.distances import finite, float_leaves, power
from safe_arm.accuracy.loggers import LeafLogger, with_loggers

#: Random signs for each sample at least and at most: the estimate of a noise power by n draws is right to sqrt(2 / n).
DRAWS = 4
MOST = 16


class OutputNoise:
    """The noise that each unit alone causes at the outputs, relative to the signal there.

    Args:
        reference: the float net.
        paired: by unit, its node in that net.
        draws: random signs for each sample, brought within ``DRAWS`` and ``MOST``.
    """

    def __init__(
        self,
        reference: GraphModule,
        paired: Mapping[str, str],
        draws: int,
    ) -> None:
        places = {unit: [node] for unit, node in paired.items()}
        self._model, self._loggers = with_loggers(reference, places, LeafLogger)
        self._draws = min(MOST, max(DRAWS, draws))
        self._generator = torch.Generator().manual_seed(0)
        self._noise: dict[str, list[float]] = {}  # by output, summed over samples
        self._signal: list[float] = []

    @property
    def of_units(self) -> dict[str, float]:
        """Noise over signal, summed over the outputs, for each unit that a gradient leads to."""
        ratios = {}
        for name, noises in self._noise.items():
            ratios[name] = 0.0
            for noise, signal in zip(noises, self._signal, strict=True):
                if signal:
                    ratios[name] += noise / signal
        return ratios

    def add(self, sample: tuple[object, ...], errors: Mapping[str, Tensor]) -> None:
        """Add one sample, and the error of each unit on it."""
        with torch.enable_grad():
            outputs = float_leaves(self._model(*sample))
        values = {name: self._loggers[name].value for name in errors}
        self._signal = self._signal or [0.0] * len(outputs)
        for index, output in enumerate(outputs):
            value, _ = finite(output.detach(), output.detach())
            self._signal[index] += power(value)
            if values and output.requires_grad and output.numel():
                self._add_output(index, output, values, errors)

    def _add_output(
        self,
        index: int,
        output: Tensor,
        values: Mapping[str, Tensor],
        errors: Mapping[str, Tensor],
    ) -> None:
        directions = self._directions(output)
        leaves = list(values.values())
        for direction in directions:
            gradients = torch.autograd.grad(
                output, leaves, direction, retain_graph=True, allow_unused=True
            )
            squares = direction.square().sum().item()
            for name, gradient in zip(values, gradients, strict=True):
                if gradient is None:
                    continue
                change = (gradient * errors[name]).sum(dtype=torch.float64)
                caused = change.square().item()
                if math.isfinite(caused):  # It is not through a mask of infinities.
                    noise = self._noise.setdefault(name, [0.0] * len(self._signal))
                    noise[index] += caused / len(directions) / squares

    def _directions(self, output: Tensor) -> Tensor:
        """Return random signs; for few values, each value by itself, which makes the sum exact."""
        size = output.numel()
        if size <= self._draws:
            return torch.eye(size, dtype=output.dtype).reshape(size, *output.shape)
        shape = (self._draws, *output.shape)
        bits = torch.randint(0, 2, shape, generator=self._generator)
        return 2 * bits.to(output.dtype) - 1
