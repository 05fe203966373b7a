"""How well quantisation keeps a float net: ideal, ours and stock, row by row."""

from __future__ import annotations

import torch

from benchmarks.quality import composites, decoders
from benchmarks.quality.subjects import Entry

torch.set_num_threads(1)

ENTRIES: list[Entry] = [*composites.ENTRIES, *decoders.ENTRIES]
