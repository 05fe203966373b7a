"""Grid sampling is quantised only where a texture unit computes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.fx import GraphModule

from safe_arm._compat.annotations import hidden_from_annotators
from safe_arm.quantizer.graphs.graph_edits import calls, tensor_of

_SAMPLER = torch.ops.aten.grid_sampler.default
#: Channels of the images that the shader for int8 takes.
_CHANNELS = (3, 4)


@contextmanager
def samplers_left_alone(model: GraphModule, has_texture_unit: bool) -> Iterator[None]:
    """Keep annotators away from grid sampling while the block runs, unless the target has a texture unit.

    Stock quantises it for every target, for the shader of VGF, which reads an image of three or four channels. Others
    are sampled on the CPU, and the image keeps its own domain.

    Args:
        model: a float graph.
        has_texture_unit: the target is VGF.
    """
    samplers = []
    for sampler in calls(model, _SAMPLER):
        if not has_texture_unit or not _is_texture(tensor_of(sampler.args[0])):
            samplers.append(sampler)
    with hidden_from_annotators(samplers):
        yield


def _is_texture(image: Tensor | None) -> bool:
    """Tell whether the shader takes an image; asking for the value of a dynamic size would fix it."""
    if image is None or image.dim() != 4:
        return False
    channels = image.shape[1]
    return isinstance(channels, int) and channels in _CHANNELS
