"""The domain of an additive mask."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchao.quantization.pt2e.observer import ObserverBase

from safe_arm._compat.annotations import ScaleAndZero
from safe_arm.quantizer.graphs.mask_bounds import MASKED


class MaskObserver(ObserverBase):
    """Gives an additive mask a domain that reaches from where it masks to its maximum, in which 0 has a code.

    Attributes:
        min_val, max_val: the least and the most it adds to a score that it keeps, or 0.

    Args:
        dtype: int8 or int16.
        quant_min: the least code.
        quant_max: the greatest.
        qscheme: affine or symmetric.
        options: what else the spec of a stock observer holds.
    """

    min_val: Tensor
    max_val: Tensor

    def __init__(
        self,
        dtype: torch.dtype,
        quant_min: int,
        quant_max: int,
        qscheme: torch.qscheme,
        **options: Any,
    ) -> None:
        super().__init__(dtype, is_dynamic=False)
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.qscheme = qscheme
        self.register_buffer("min_val", torch.zeros(()))
        self.register_buffer("max_val", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """Look at what a mask adds to what it keeps, and return it."""
        kept = x.detach().to(self.max_val.dtype)
        kept = kept[kept > MASKED / 2]
        if kept.numel():
            lowest = torch.minimum(self.min_val, kept.amin())
            highest = torch.maximum(self.max_val, kept.amax())
            self.min_val.copy_(lowest)
            self.max_val.copy_(highest)
        return x

    def calculate_qparams(self) -> ScaleAndZero:
        """Return scale and zero point."""
        highest = float(self.max_val)
        if self.qscheme == torch.per_tensor_symmetric:
            scale = max(highest, -MASKED) / self.quant_max
            return torch.tensor([scale]), torch.tensor([0])
        scale = (highest - MASKED) / (self.quant_max - self.quant_min)
        zero_point = self.quant_max - round(highest / scale)
        return torch.tensor([scale]), torch.tensor([zero_point])
