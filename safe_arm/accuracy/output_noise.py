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

from safe_arm.accuracy.loggers import LeafLogger, with_loggers

#: Random signs over all samples: the estimate of a noise power is right to sqrt(2 / DRAWS), a quarter.
DRAWS = 32


class OutputNoise:
    """The noise that each unit alone causes at the outputs, relative to the signal there."""

    def __init__(self, reference: GraphModule, paired: Mapping[str, str], samples: int) -> None:
        self._model, self._loggers = with_loggers(reference, [(n, [p]) for n, p in paired.items()], LeafLogger)
        self._draws = math.ceil(DRAWS / max(1, samples))
        self._generator = torch.Generator().manual_seed(0)
        self._noise: dict[str, list[float]] = {}  # by output, summed over samples
        self._signal: list[float] = []

    @property
    def of_units(self) -> dict[str, float]:
        """By unit, noise over signal, summed over the outputs; none of units that no gradient leads to."""
        return {
            name: sum(noise / signal for noise, signal in zip(each, self._signal, strict=True) if signal)
            for name, each in self._noise.items()
        }

    def add(self, sample: tuple[object, ...], errors: Mapping[str, torch.Tensor]) -> None:
        """Add one sample, and the error of each unit on it."""
        for logger in self._loggers.values():
            logger.stats = []
        with torch.enable_grad():
            flat = pytree.tree_leaves(self._model(*sample))
        outputs = [each for each in flat if isinstance(each, torch.Tensor) and each.is_floating_point()]
        values = {name: self._loggers[name].stats[0] for name in errors if self._loggers[name].stats}
        self._signal = self._signal or [0.0] * len(outputs)
        for index, output in enumerate(outputs):
            self._signal[index] += output.detach().double().square().mean().item()
            if values and output.requires_grad and output.numel():
                self._add_output(index, output, values, errors)

    def _add_output(
        self,
        index: int,
        output: torch.Tensor,
        values: Mapping[str, torch.Tensor],
        errors: Mapping[str, torch.Tensor],
    ) -> None:
        for _ in range(self._draws):
            signs = torch.randint(0, 2, output.shape, generator=self._generator).to(output.dtype) * 2 - 1
            leaves = list(values.values())
            found = torch.autograd.grad(output, leaves, signs, retain_graph=True, allow_unused=True)
            for name, gradient in zip(values, found, strict=True):
                if gradient is not None:
                    caused = (gradient.double() * errors[name].double()).sum().square().item()
                    noise = self._noise.setdefault(name, [0.0] * len(self._signal))
                    noise[index] += caused / self._draws / output.numel()
