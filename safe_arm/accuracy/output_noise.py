"""What the error of each unit comes to at the outputs of the net, to first order.

For random signs v on the outputs, the gradient g of v times the outputs by a unit's value gives (g times e)^2, whose
mean over v is the noise that the unit's error e causes there (Hutchinson's estimator): a few backward passes give all
units at once, where running the net with each unit quantised alone would take a run for each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from safe_arm.accuracy.distances import finite
from safe_arm.accuracy.loggers import LeafLogger, with_loggers

#: Random signs for each sample at least and at most: the estimate of a noise power by n draws is right to sqrt(2 / n).
DRAWS, MOST = 4, 16


class OutputNoise:
    """The noise that each unit alone causes at the outputs, relative to the signal there.

    Args:
        reference: the float net.
        paired: by unit, its node in that net.
        draws: random signs for each sample, brought within ``DRAWS`` and ``MOST``.
    """

    def __init__(
        self, reference: GraphModule, paired: Mapping[str, str], draws: int
    ) -> None:
        self._model, self._loggers = with_loggers(
            reference, [(n, [p]) for n, p in paired.items()], LeafLogger
        )
        self._draws = min(MOST, max(DRAWS, draws))
        self._generator = torch.Generator().manual_seed(0)
        self._noise: dict[str, list[float]] = {}  # by output, summed over samples
        self._signal: list[float] = []

    @property
    def of_units(self) -> dict[str, float]:
        """By unit, noise over signal, summed over the outputs; none of units that no gradient leads to."""
        return {
            name: sum(
                noise / signal
                for noise, signal in zip(each, self._signal, strict=True)
                if signal
            )
            for name, each in self._noise.items()
        }

    def add(
        self, sample: tuple[object, ...], errors: Mapping[str, torch.Tensor]
    ) -> None:
        """Add one sample, and the error of each unit on it."""
        for logger in self._loggers.values():
            logger.stats = []
        with torch.enable_grad():
            flat = pytree.tree_leaves(self._model(*sample))
        outputs = [
            each
            for each in flat
            if isinstance(each, torch.Tensor) and each.is_floating_point()
        ]
        values = {
            name: self._loggers[name].stats[0]
            for name in errors
            if self._loggers[name].stats
        }
        self._signal = self._signal or [0.0] * len(outputs)
        for index, output in enumerate(outputs):
            self._signal[index] += (
                finite(output.detach(), output.detach())[0]
                .double()
                .square()
                .mean()
                .item()
            )
            if values and output.requires_grad and output.numel():
                self._add_output(index, output, values, errors)

    def _add_output(
        self,
        index: int,
        output: torch.Tensor,
        values: Mapping[str, torch.Tensor],
        errors: Mapping[str, torch.Tensor],
    ) -> None:
        directions = self._directions(output)
        leaves = list(values.values())
        for direction in directions:
            found = torch.autograd.grad(
                output, leaves, direction, retain_graph=True, allow_unused=True
            )
            for name, gradient in zip(values, found, strict=True):
                if gradient is not None:
                    caused = (
                        (gradient * errors[name])
                        .sum(dtype=torch.float64)
                        .square()
                        .item()
                    )
                    if not math.isfinite(caused):  # through a mask of infinities
                        continue
                    noise = self._noise.setdefault(name, [0.0] * len(self._signal))
                    noise[index] += (
                        caused / len(directions) / direction.square().sum().item()
                    )

    def _directions(self, output: torch.Tensor) -> torch.Tensor:
        """Return random signs, or, of few values, each value by itself, which makes the sum exact."""
        if (size := output.numel()) <= self._draws:
            return torch.eye(size, dtype=output.dtype).reshape(size, *output.shape)
        return (
            2
            * torch.randint(
                0, 2, (self._draws, *output.shape), generator=self._generator
            ).to(output.dtype)
            - 1
        )
