"""Products of all elements so far, in terms of operators that the annotators know."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_ATEN = torch.ops.aten
#: More elements than this take more than so many roundings, one for each doubling.
_MOST = 256


def _products_so_far(
    x: Tensor, dim: int, dtype: torch.dtype | None = None
) -> Tensor | None:
    """Return products over windows of twice the length each time: a product of n elements is rounded log2(n) times."""
    size = x.shape[dim] if x.dim() else None
    if not isinstance(size, int) or not 1 < size <= _MOST:
        return None
    if dtype not in (None, x.dtype):
        return None
    last = x.movedim(dim, -1)
    length = 1
    while length < size:
        earlier = F.pad(last[..., :-length], (length, 0), value=1.0)
        last = last * earlier
        length *= 2
    return last.movedim(-1, dim)


#: The spellings by their operators.
SCANS = {_ATEN.cumprod.default: _products_so_far}
