"""Makes torchvision importable beside a CPU torch, where its C++ operators are missing."""

from __future__ import annotations

import torch

#: What torchvision registers shapes and gradients for on import. No net calls one: the signatures do not matter.
_OPERATORS = ("nms", "qnms", *(
    f"{prefix}{name}{suffix}"
    for name in ("roi_align", "ps_roi_align", "roi_pool", "ps_roi_pool", "deform_conv2d")
    for prefix, suffix in (("", ""), ("_", "_backward"))
), "qroi_align")  # fmt: skip
_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")


def define_torchvision_operators() -> None:
    """Define those of torchvision's operators that are not there, without an implementation."""
    for name in _OPERATORS:
        if not hasattr(torch.ops.torchvision, name):
            _LIBRARY.define(f"{name}(Tensor x) -> Tensor")
