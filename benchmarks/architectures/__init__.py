"""Forty whole architectures at small sizes: timm's, torchvision's and transformers' families, and heads by hand.

Weights are random with a fixed seed, batch norms have random statistics, so that zero points leave the ends.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.architectures import by_hand, from_timm, from_torchvision, from_transformers
from benchmarks.architectures.beside_cpu_torch import define_torchvision_operators
from benchmarks.nets import Net

define_torchvision_operators()  # timm and transformers import torchvision too.

ARCHITECTURES: dict[str, Callable[[], Net]] = {
    **from_timm.NETS,
    **from_torchvision.NETS,
    **from_transformers.NETS,
    **by_hand.NETS,
}
