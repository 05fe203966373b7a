"""The search for the range that a histogram observer clips to, on Python's floats and not on tensors of one element.

torchao's ``HistogramObserver`` moves two quantiles inwards in up to 100,000 steps and compares elements of a tensor at
each. For values as few as a small net has, that takes longer than all else in quantising.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy
import torch
from torch import nn
from torchao.quantization.pt2e.observer import HistogramObserver

from safe_arm.acceleration import switch

_SEARCH = "_non_linear_param_search"
#: By how much of the values a step moves a quantile, as torchao has it.
_STEP = 1e-5


@contextmanager
def on_floats(observer: nn.Module) -> Iterator[None]:
    """Let a histogram observer search quickly while the block runs, to the same range; leave another observer alone."""
    stock = vars(HistogramObserver).get(_SEARCH)
    known = isinstance(observer, HistogramObserver) and getattr(type(observer), _SEARCH, None) is stock
    if not known or not switch.is_on() or observer.histogram.dtype != torch.float32:
        yield
        return
    setattr(observer, _SEARCH, lambda: _range(observer))
    try:
        yield
    finally:
        delattr(observer, _SEARCH)


def _range(observer: HistogramObserver) -> tuple[torch.Tensor, torch.Tensor]:
    first, last = _kept(observer)
    width = (observer.max_val - observer.min_val) / observer.bins
    return observer.min_val + width * first, observer.min_val + width * (last + 1)


def _kept(observer: HistogramObserver) -> tuple[int, int]:
    """Return the first and the last bin that are not clipped."""
    total = observer.histogram.sum().item()
    below = observer.histogram.cumsum(0).tolist()
    low, high, first, last, least = 0.0, 1.0, 0, observer.bins - 1, float("inf")
    while low < high:
        lower, upper = low + _STEP, high - _STEP
        # A tensor of float32 is compared with what float32 makes of a number.
        left, right = float(numpy.float32(lower * total)), float(numpy.float32(upper * total))
        start, end = first, last
        while start < last and below[start] < left:
            start += 1
        while end > first and below[end] > right:
            end -= 1
        if start - first > last - end:
            low, end = lower, last
        else:
            high, start = upper, first
        if (start, end) == (first, last):
            continue
        error = observer._compute_quantization_error(start, end)
        if error > least:
            break
        least, first, last = error, start, end
    return first, last
