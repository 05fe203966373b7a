"""A range in 16 bits ends where its values end.

Stock's histogram has 2,048 bins, and its search may cut off the last ones. That is a share of a code of 8 bits,
and 16 codes of 16: all of a clipped image, a mask or a constant that lies there is off by so many.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor
from torchao.quantization.pt2e.observer import HistogramObserver

from safe_arm._compat.annotations import ScaleAndZero
from safe_arm.quantizer.graphs.stand_ins import Observers

#: Number of steps of 8 bits.
_STEPS = 255
#: Number of bins that the search may cut off by its own rounding; if it cuts off more, it does so on purpose.
_BINS = 1.5


def keep_ends_of_ranges(observers: Observers) -> None:
    """Let histograms for more than 8 bits end with the values that they were shown.

    Args:
        observers: the observer of each annotated place; changed in place. Fake-quantise modules are left alone.
    """
    for observer in set(observers.values()):
        if not isinstance(observer, HistogramObserver):
            continue
        if observer.quant_max - observer.quant_min > _STEPS:
            of_range = observer._calculate_qparams
            find = partial(_calculate_qparams, observer, of_range)
            observer._calculate_qparams = find  # type: ignore[method-assign]


def _calculate_qparams(
    observer: HistogramObserver,
    of_range: Callable[[Tensor, Tensor], ScaleAndZero],
    low: Tensor,
    high: Tensor,
) -> ScaleAndZero:
    """Return scale and zero point of a range, with what the search cut off of the last bin at either end."""
    bin_width = (observer.max_val - observer.min_val) / observer.bins
    if 0 < low - observer.min_val < _BINS * bin_width:
        low = observer.min_val
    if 0 < observer.max_val - high < _BINS * bin_width:
        high = observer.max_val
    return of_range(low, high)
