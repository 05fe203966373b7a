"""A positive value stays positive where it is rounded in training, if an operator that reads it has no value at zero.

The inverse root of a variance that is less than half a step is infinite in the graph that is trained, and every
parameter is NaN after the step. On the device it is the largest of its domain (``norm_domains``). A batch of large
values is enough, whose variances widen the domain beyond those of the next. The least value that was seen takes the
place of zero, so that what is computed of it reaches as far as in the float net.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.quantizer.graphs.stand_ins import (
    Observer,
    Observers,
    StandIn,
    least_known,
    put_in_front,
    shown,
)

_ATEN = torch.ops.aten
#: Operators that have no value at zero.
_SINGULAR = (
    _ATEN.rsqrt.default,
    _ATEN.reciprocal.default,
    _ATEN.log.default,
    _ATEN.log2.default,
    _ATEN.log10.default,
)


class PositiveValue(StandIn):
    """Fake-quantises a value, of which nothing is less than what was seen; half a step if that is zero.

    Where something negative was seen, it is rounded as any other.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return a value of any shape rounded."""
        rounded = shown(self.observer, x)
        lowest = self.observer.activation_post_process.min_val
        if bool(lowest < 0):
            return rounded
        # The epsilon of a norm may be rounded to zero as well.
        least = torch.where(lowest > 0, lowest, self.observer.scale / 2)
        return torch.maximum(rounded, least.reshape(()))


def keep_positive(
    observers: Observers,
) -> None:
    """Let what an operator reads that has no value at zero not be rounded to it.

    Args:
        observers: the observer or fake-quantise module of each annotated place; changed in place. Observers are left
            alone.
    """

    def positive(value: Node, observer: Observer) -> PositiveValue | None:
        is_singular = any(reader.target in _SINGULAR for reader in value.users)
        return (
            PositiveValue(observer) if is_singular and _is_rounded(observer) else None
        )

    put_in_front(observers, PositiveValue, positive)


def _is_rounded(observer: Observer) -> bool:
    is_kept = least_known(observer) is not None
    return is_kept and hasattr(observer, "fake_quant_enabled")
