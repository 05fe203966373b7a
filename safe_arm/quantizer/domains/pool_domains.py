"""Give an average pool a domain of its own by writing it as a depthwise convolution."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    QuantizationSpec,
)

from safe_arm._compat.annotations import Q_ANNOTATION_KEY, annotation_of
from safe_arm.core.island import arguments_by_name
from safe_arm.quantizer.domains.own_domains import give_own_domain, shared_spec
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    calls,
    is_branch,
    pair,
    tensor_of,
)
from safe_arm.quantizer.precision.exact_products import number_spec

_POOL = torch.ops.aten.avg_pool2d.default
_CONV = torch.ops.aten.conv2d.default
#: The code of every weight, so that its value is the reciprocal of the window's size.
_CODE = 127
#: Largest side of a window that Ethos-U convolves with.
_SIDE = 64
#: Largest area of one that is convolved: each of its places has a weight for each channel.
_AREA = 64 * 64
#: Largest area of a lone window that Ethos-U reads in one step as quickly as in two.
_LONE_AREA = 9


def convolve_pools(model: GraphModule, *, is_ethos_u: bool = False) -> None:
    """Convolve with equal weights instead of pooling, with an observer of its own behind it.

    TOSA's pool rounds to codes of its input's scale, and the mean of many values has a smaller range. A convolution
    keeps its sum in 32 bits and rounds once, to the scale of the result. It costs fewer cycles than a pool except where
    a window is the whole image: then each weight is read for one product.

    Args:
        model: an annotated float graph; changed in place. A pool that is not quantised to int8 stays one.
        is_ethos_u: average an image over its height first and over its width then. That rounds twice, and costs
            Ethos-U about as many cycles as a pool. Other large windows stay pools: a convolution of 4 x 4 costs an
            Ethos-U85 70 % more cycles. No side is longer than Ethos-U takes.
    """
    if is_branch(model):  # It may read no tensor of its own (T64).
        return
    for pool in calls(model, _POOL):
        spec = shared_spec(pool)
        if spec is None or not _is_convolution(pool):
            continue
        kernel, stride = _window(pool)
        if is_ethos_u and max(kernel) > _SIDE:
            continue
        is_large = is_ethos_u and kernel[0] * kernel[1] > _LONE_AREA
        if is_large and not _is_lone(pool):
            continue
        give_own_domain(model, pool, spec)
        if is_large:
            _insert_step(pool, [kernel[0], 1], spec)
            kernel = [1, kernel[1]]
        _convolve(pool, kernel, stride)
    model.recompile()


def _is_convolution(pool: Node) -> bool:
    """Tell whether all windows of a pool lie inside its input and are not too large."""
    source = tensor_of(pool.args[0])
    value = tensor_of(pool)
    if source is None or value is None:
        return False
    if source.dim() != 4:
        return False
    if not isinstance(source.shape[1], int):
        return False
    arguments = arguments_by_name(pool)
    if any(arguments["padding"]):
        return False
    kernel, stride = _window(pool)
    if kernel[0] * kernel[1] > _AREA:
        return False
    if not arguments["ceil_mode"]:
        return True
    for axis in (0, 1):  # Rounded up, the last window may reach over the edge.
        size = source.shape[axis + 2]
        steps = (size - kernel[axis]) // stride[axis]
        if value.shape[axis + 2] != steps + 1:
            return False
    return True


def _is_lone(pool: Node) -> bool:
    value = tensor_of(pool)
    if value is None:
        return False
    return value.shape[2:].numel() == 1


def _window(pool: Node) -> tuple[list[int], list[int]]:
    """Return the kernel and the stride of a pool."""
    _, kernel, stride, *_ = arguments_by_name(pool).values()
    return pair(kernel), pair(stride or kernel)


def _insert_step(pool: Node, kernel: list[int], spec: QuantizationSpec) -> None:
    """Average with a smaller kernel before a pool, which reads the result."""
    source = pool.all_input_nodes[0]
    step = Writer(pool)(_POOL, source, kernel, [1, 1])
    mine = annotation_of(pool)
    step.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(
        dict(mine.input_qspec_map), spec, _annotated=True
    )
    mine.input_qspec_map = {step: spec}
    pool.replace_input_with(source, step)
    _convolve(step, kernel, [1, 1])


def _convolve(pool: Node, kernel: list[int], stride: list[int]) -> None:
    """Make a convolution of a pool, under the pool's name."""
    source = pool.all_input_nodes[0]
    like = source.meta["val"]
    channels = like.shape[1]
    weight = 1 / (kernel[0] * kernel[1])
    shape = (channels, 1, *kernel)
    weights = torch.full(shape, weight, dtype=like.dtype)
    read = Writer(pool).constant(weights, "_mean_of")
    annotation = annotation_of(pool)
    annotation.input_qspec_map[read] = number_spec(weight / _CODE)
    pool.target = _CONV
    pool.args = (source, read, None, stride, [0, 0], [1, 1], channels)
    pool.kwargs = {}
