"""A layer of weighted means keeps the sum of each: a step larger than stock's is used where the codes sum up better.

In 127ths of the largest, the four weights of a bicubic resize sum to 1.0035. It has two such layers, and the image that
is 0.7 % too bright costs more than all else that int8 does. In 100ths of the largest, their codes are -12, 100, 30 and
-4: they sum to 1, and are nearer to the weights, too. Blurs and conversions to grey are such layers as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torchao.quantization.pt2e.observer import PerChannelMinMaxObserver

from safe_arm._compat.annotations import ScaleAndZero
from safe_arm.core.attributes import stored_value
from safe_arm.quantizer.graphs.stand_ins import Observers, value_of

#: The sums of trained weights are not so near to 1 in all channels.
_TOLERANCE = 1e-3
#: The square of an error of a sum counts so many times as that of one weight: the values near each other in an image
#: are nearly alike.
_SUM = 16.0


def keep_weighted_means(observers: Observers) -> None:
    """Let the observers of weights that sum to 1 in each channel find steps in which the codes do so, too.

    Args:
        observers: the observer of each annotated place; changed in place. Fake-quantise modules are left alone.
    """
    for place, observer in observers.items():
        value = value_of(place)
        if value.op != "get_attr" or type(observer) is not PerChannelMinMaxObserver:
            continue
        weight = stored_value(value)
        rows = weight.detach().movedim(observer.ch_axis, 0).flatten(1)
        if not rows.numel():
            continue
        if bool(((rows.sum(1) - 1).abs() < _TOLERANCE).all()):
            find = partial(_qparams, observer._calculate_qparams, observer, rows)
            observer._calculate_qparams = find  # type: ignore[method-assign]


def _qparams(
    stock: Callable[..., ScaleAndZero],
    observer: PerChannelMinMaxObserver,
    rows: Tensor,
    *bounds: Tensor,
) -> ScaleAndZero:
    """Return the steps in which the codes of each row are nearest to it and to its sum, and the zero points."""
    scale, zero_point = stock(*bounds)
    most = int(observer.quant_max)
    best = scale
    least = _errors(rows, scale)
    for largest in range(most - 1, most // 2, -1):
        step = scale * most / largest
        error = _errors(rows, step)
        best = torch.where(error < least, step, best)
        least = torch.minimum(error, least)
    return best, zero_point


def _errors(rows: Tensor, step: Tensor) -> Tensor:
    codes = torch.round(rows / step[:, None])
    errors = rows - codes * step[:, None]
    return errors.square().sum(1) + _SUM * errors.sum(1).square()
