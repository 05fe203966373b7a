"""Let only operators be fused that give their value in the same quantisation domain."""

from __future__ import annotations

import copy
from collections.abc import Hashable

from torch.fx import Node

from safe_arm._compat.upstream import ExportPass
from safe_arm.passes.applied import applied


def domains_apart(stock: ExportPass) -> ExportPass:
    """Return a FuseDuplicateUsersPass like another, that looks at qparams too.

    The stock pass runs after the fold of Q and DQ nodes, and takes two operators for one if target and arguments agree.
    Where their quantisers do not, such as with one of two ``tanh(h)`` in a ``cat``, the one's codes are read in the
    other's domain: 103 of 255 codes off (S25).

    Args:
        stock: the pass; it stays as it is.
    """
    ours = copy.copy(stock)
    domains: dict[Hashable, Hashable] = {}

    def signature(node: Node) -> tuple[Hashable, ...] | None:
        same: tuple[Hashable, ...] | None = stock._build_user_signature(node)
        if same is None:
            return None
        domain = ours._to_hashable(
            [node.meta.get("input_qparams"), node.meta.get("output_qparams")]
        )
        if domains.setdefault(same, domain) != domain:
            applied(ours, node)
        return (*same, domain)

    ours._build_user_signature = signature
    return ours
