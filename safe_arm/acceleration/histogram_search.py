"""Search the range that a histogram observer clips to on Python's floats, not on tensors of one element.

torchao's ``HistogramObserver`` moves two quantiles inwards in up to 100,000 steps and compares elements of a tensor at
each. For values as few as a small net has, that takes longer than all else in quantising.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeGuard

import numpy
import torch
from numpy.typing import NDArray
from torch import nn
from torchao.quantization.pt2e.observer import HistogramObserver

from safe_arm.acceleration import switch

_SEARCH = "_non_linear_param_search"
#: Share of the values by which a step moves a quantile, as in torchao.
_STEP = 1e-5
#: Number of steps after which the quantiles have met.
_STEPS = 100_002

_Floats = NDArray[numpy.float64]


@contextmanager
def on_floats(observer: nn.Module) -> Iterator[None]:
    """Let a histogram observer search quickly while the block runs, to the same range; leave another observer alone.

    An observer whose qparams are derived from those of others, such as a bias's, lets those search quickly. They may be
    derived themselves.
    """
    searching: list[HistogramObserver] = []
    for each in _sources(observer):
        if switch.is_on() and _searches_slowly(each):
            setattr(each, _SEARCH, functools.partial(_range, each))
            searching.append(each)
    try:
        yield
    finally:
        for each in searching:
            delattr(each, _SEARCH)


def _sources(observer: nn.Module) -> list[nn.Module]:
    """Return an observer and all those that its qparams are derived from, each once."""
    found = {id(observer): observer}
    pending = [observer]
    while pending:
        each = pending.pop()
        inner = [getattr(each, "observer", None), *getattr(each, "obs_or_fqs", ())]
        for source in inner:
            if isinstance(source, nn.Module) and id(source) not in found:
                found[id(source)] = source
                pending.append(source)
    return list(found.values())


def _searches_slowly(observer: nn.Module) -> TypeGuard[HistogramObserver]:
    """Tell whether an observer would search as torchao wrote it, on float32."""
    stock = vars(HistogramObserver).get(_SEARCH)
    is_stock = getattr(type(observer), _SEARCH, None) is stock
    if not isinstance(observer, HistogramObserver) or not is_stock:
        return False
    is_quick = _SEARCH in vars(observer)
    return not is_quick and observer.histogram.dtype == torch.float32


def _range(observer: HistogramObserver) -> tuple[torch.Tensor, torch.Tensor]:
    first, last = _kept(observer)
    width = (observer.max_val - observer.min_val) / observer.bins
    return observer.min_val + width * first, observer.min_val + width * (last + 1)


@functools.cache
def _quantiles() -> tuple[_Floats, _Floats]:
    """Return the lower and the upper quantile after each step, rounded as if computed step by step."""
    steps = numpy.full(_STEPS, _STEP)
    return numpy.add.accumulate([0.0, *steps]), numpy.subtract.accumulate([1.0, *steps])


def _kept(observer: HistogramObserver) -> tuple[int, int]:
    """Return the first and the last bin that are not clipped."""
    total = observer.histogram.sum().item()
    below = observer.histogram.cumsum(0).tolist()
    lows, highs = _quantiles()
    # The observer compares a float32 tensor with a number, which rounds the number to float32.
    lefts = (lows * total).astype(numpy.float32)
    rights = (highs * total).astype(numpy.float32)
    rights_ascending = rights[::-1]
    low = high = 0
    first = 0
    last = observer.bins - 1
    least = float("inf")
    while lows[low] < highs[high]:
        left = lefts[low + 1].item()
        right = rights[high + 1].item()
        start = first
        end = last
        while start < last and below[start] < left:
            start += 1
        while end > first and below[end] > right:
            end -= 1
        if (start, end) == (first, last):
            high += 1
            if math.isfinite(total):
                # Nothing changes until the upper quantile is below the cumulative count of the last bin.
                end_of_last = numpy.float32(below[last])
                smaller = int(numpy.searchsorted(rights_ascending, end_of_last))
                high = max(high, min(_STEPS + 1 - smaller, _STEPS) - 1)
            continue
        if start - first > last - end:
            low, end = low + 1, last
        else:
            high, start = high + 1, first
        if (start, end) == (first, last):
            continue
        error = observer._compute_quantization_error(start, end)
        if error > least:
            break
        least = error
        first = start
        last = end
    return first, last
