"""Operators that the backend takes apart, alone between an input and an output."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.quality.subjects import Entry, Function, Sample, Subject, normal

IMAGE = (2, 8, 12, 12)
TOKENS = (2, 16, 64)
HEADS = (2, 4, 16, 16)
Draw = Callable[[torch.Generator], Sample]


def _mean_of_squares(x: Tensor) -> Tensor:
    return x.pow(2).mean(-1, keepdim=True)


def _small_and_large(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return what is joined, and the small part of it as an output of its own: the noise there is lost in the whole."""
    joined = torch.cat((x, 0.02 * y), 1)
    return joined, joined[:, x.shape[1] :]


#: By name, the function and how its inputs are drawn.
_FUNCTIONS: dict[str, tuple[Callable[..., object], Draw]] = {
    "softmax": (partial(torch.softmax, dim=-1), normal(HEADS)),
    "softmax-peaked": (partial(torch.softmax, dim=-1), normal(HEADS, scale=4.0)),
    "softmax-1000": (partial(torch.softmax, dim=-1), normal((4, 1000), scale=3.0)),
    "softmax-channels": (partial(torch.softmax, dim=1), normal(IMAGE, scale=2.0)),
    "log-softmax": (partial(torch.log_softmax, dim=-1), normal(HEADS)),
    "log-softmax-peaked": (partial(torch.log_softmax, dim=-1), normal(HEADS, scale=4.0)),
    "log-softmax-1000": (partial(torch.log_softmax, dim=-1), normal((4, 1000), scale=3.0)),
    "logsumexp": (partial(torch.logsumexp, dim=-1), normal(TOKENS, scale=2.0)),
    "softmin": (partial(F.softmin, dim=-1), normal(HEADS, scale=2.0)),
    "layer-norm": (partial(F.layer_norm, normalized_shape=(64,)), normal(TOKENS)),
    "layer-norm-off-centre": (partial(F.layer_norm, normalized_shape=(64,)), normal(TOKENS, mean=5.0)),
    "layer-norm-small": (partial(F.layer_norm, normalized_shape=(64,)), normal(TOKENS, scale=0.05)),
    "group-norm": (partial(F.group_norm, num_groups=4), normal(IMAGE)),
    "instance-norm": (F.instance_norm, normal(IMAGE)),
    "rms-norm": (partial(F.rms_norm, normalized_shape=(64,)), normal(TOKENS)),
    "var": (partial(torch.var, dim=-1), normal(TOKENS)),
    "var-off-centre": (partial(torch.var, dim=-1), normal(TOKENS, mean=5.0)),
    "std": (partial(torch.std, dim=-1), normal(TOKENS)),
    "cosine-similarity": (partial(F.cosine_similarity, dim=-1), normal(TOKENS, TOKENS)),
    "cdist": (torch.cdist, normal(TOKENS, TOKENS)),
    "normalize": (partial(F.normalize, dim=-1), normal(TOKENS)),
    "norm": (partial(torch.linalg.vector_norm, dim=-1), normal(TOKENS)),
    "norm-1": (partial(torch.linalg.vector_norm, ord=1, dim=-1), normal(TOKENS)),
    "mean-of-squares": (_mean_of_squares, normal(TOKENS)),
    "avg-pool2d": (partial(F.avg_pool2d, kernel_size=3), normal(IMAGE)),
    "adaptive-avg-pool2d": (partial(F.adaptive_avg_pool2d, output_size=1), normal(IMAGE)),
    "adaptive-avg-pool2d-uneven": (partial(F.adaptive_avg_pool2d, output_size=5), normal(IMAGE)),
    "mean": (partial(torch.mean, dim=-1), normal(TOKENS)),
    "mean-image": (partial(torch.mean, dim=(2, 3)), normal(IMAGE)),
    "cat-small-and-large": (_small_and_large, normal(TOKENS, TOKENS)),
    "gelu": (F.gelu, normal(TOKENS, scale=2.0)),
    "gelu-tanh": (partial(F.gelu, approximate="tanh"), normal(TOKENS, scale=2.0)),
    "silu": (F.silu, normal(TOKENS, scale=2.0)),
    "sdpa": (F.scaled_dot_product_attention, normal(*[(2, 4, 16, 16)] * 3, scale=1.5)),
}


def _subject(function: Callable[..., object], draw: Draw) -> Subject:
    return Subject(Function(function).eval(), draw, calibrated=32)


ENTRIES = [Entry(f"b/{name}", partial(_subject, *row)) for name, row in _FUNCTIONS.items()]
