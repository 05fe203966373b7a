"""An image that leaves the range of a texture keeps its values.

Stock gives an image that is sampled, and the result, the range of a signed normalised texture, -1 to 1, and clips the
values beyond it. The shader takes no other range, so that such an image is sampled on the CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torchao.quantization.pt2e.observer import FixedQParamsObserver, MinMaxObserver

from safe_arm._compat.annotations import ScaleAndZero
from safe_arm.quantizer.graphs.stand_ins import Observer, Observers, StandIn

_SAMPLER = torch.ops.aten.grid_sampler.default
#: The largest value of a signed normalised texture.
_LARGEST = 1.0


class Texture(StandIn):
    """Watches an image and what is sampled from it, and widens stock's range if they leave it."""

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self.values = MinMaxObserver(
            dtype=torch.int8,
            qscheme=torch.per_tensor_affine,
            quant_min=observer.quant_min,
            quant_max=observer.quant_max,
        )

    def forward(self, x: Tensor) -> Tensor:
        """Show a value of any shape, and return it."""
        self.values(x)
        return x

    def calculate_qparams(self) -> ScaleAndZero:
        """Return scale and zero point: stock's if they cover all values."""
        largest = torch.maximum(-self.values.min_val, self.values.max_val)
        if largest <= _LARGEST:
            return self.observer.calculate_qparams()
        return self.values.calculate_qparams()


def widen_textures(observers: Observers) -> None:
    """Let the range of an image that is sampled, and that of the result, cover the values.

    Args:
        observers: the observer of each annotated place; changed in place. Those of 16 bits and fake-quantise modules
            are left alone.
    """
    for place, observer in list(observers.items()):
        if not isinstance(place, tuple) or not isinstance(
            observer, FixedQParamsObserver
        ):
            continue
        image, sampler = place
        if sampler.target is _SAMPLER and sampler.args[0] is image:
            observers[place] = observers[sampler] = Texture(observer)
