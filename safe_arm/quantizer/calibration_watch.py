"""What a model's inputs were shown while it was calibrated: too little of it is warned about once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from safe_arm.core.errors import DoubtfulInputWarning


@dataclass
class _Seen:
    """What one input was shown.

    Attributes:
        first: the first sample.
        low, high: the bounds of all of them.
        count: how many there were.
        differ: whether any was unlike the first.
    """

    first: Tensor
    low: float
    high: float
    count: int = 0
    differ: bool = False


class CalibrationWatch:
    """Looks at the quantised inputs of one model; every copy of the model is watched by the same one.

    Attributes:
        over: the model is converted.
    """

    def __init__(self) -> None:
        self._inputs: dict[str, _Seen] = {}
        self.over = False

    def __deepcopy__(self, memo: dict[int, Any]) -> CalibrationWatch:
        return self

    def show(self, name: str, sample: Tensor) -> None:
        """Take note of a sample that an input is shown."""
        if self.over or not sample.numel():
            return
        low, high = map(float, torch.aminmax(sample.detach()))
        if name not in self._inputs:
            self._inputs[name] = _Seen(sample.detach().clone(), low, high)
        seen = self._inputs[name]
        seen.low, seen.high, seen.count = min(seen.low, low), max(seen.high, high), seen.count + 1
        seen.differ = seen.differ or not torch.equal(seen.first, sample)

    def warn(self) -> None:
        """Say once what is wrong with the samples, when the model is converted."""
        if not self.over:
            self.over = True
            for finding in self.findings():
                warnings.warn(finding, DoubtfulInputWarning, stacklevel=2)
            self._inputs.clear()  # The samples are the user's to keep.

    def findings(self) -> Iterator[str]:
        """Yield what is wrong with the samples."""
        constant = {name: seen for name, seen in self._inputs.items() if seen.low == seen.high}
        for name, seen in constant.items():
            yield (
                f"input {name!r} is {seen.low:g} everywhere in the calibration data: no range can be learnt "
                "from it, so real inputs are clipped; calibrate on real samples"
            )
        if self._inputs and len(constant) < len(self._inputs) and not any(s.differ for s in self._inputs.values()):
            count = max(seen.count for seen in self._inputs.values())
            data = "a single sample" if count == 1 else f"{count} samples that are all the same"
            yield f"the model was calibrated on {data}: what other inputs reach beyond it is clipped; give some dozens"
