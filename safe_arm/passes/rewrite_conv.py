"""Give every reader of a 16-bit convolution its 16-bit codes."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from safe_arm._compat import upstream


class RewriteConvPass(upstream.RewriteConvPass):
    """Takes the place of the stock pass of this name.

    Where an operator that computes in 32 bits reads a convolution of int16, stock 1.5 leads the sums there unrounded
    and unsaturated, so a convolution whose codes saturate is up to the whole range off; 1.4 leads them there in a
    domain that nobody reads them in. Here that operator reads the codes.
    """

    def _insert_a16w8_output_branches(self, *_: Any) -> None:
        """Branch off nothing (1.5)."""

    def _has_int32_rescale_user(self, _: Node) -> bool:
        """Rescale to the promised domain, whoever reads it (1.4)."""
        return False
