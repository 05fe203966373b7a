"""Grid sampling is quantised in the range of a texture only where a texture unit computes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.fx import GraphModule

from safe_arm._compat.annotations import hidden_from_annotators
from safe_arm.quantizer.graphs.graph_edits import calls

_SAMPLER = torch.ops.aten.grid_sampler.default


@contextmanager
def samplers_left_alone(model: GraphModule, has_texture_unit: bool) -> Iterator[None]:
    """Keep annotators away from grid sampling while the block runs, unless the target has a texture unit.

    Stock clips the image to -1 … 1 for every target, because the shader for VGF reads a signed normalised texture. On
    other targets the operator runs on the CPU, and the image keeps its own domain.

    Args:
        model: a float graph.
        has_texture_unit: the target is VGF.
    """
    samplers = calls(model, _SAMPLER)
    with hidden_from_annotators([] if has_texture_unit else samplers):
        yield
