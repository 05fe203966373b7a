"""Annotate the consumers of factory operators, never the factories themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.fx import GraphModule, Node

from safe_arm._compat.annotations import hidden_from_annotators
from safe_arm.core.island import op_name
from safe_arm.core.operators import named

FACTORIES = named(
    "full zeros ones empty rand randn arange linspace logspace eye scalar_tensor fill fill_ zero_"
)


def is_factory(node: Node) -> bool:
    """Tell whether a node makes its values without computing on a tensor: ``full``, ``new_zeros``, ``ones_like``, …"""
    # Some passes of 1.2 call an operator without naming its overload.
    name = op_name(node) or str(getattr(node.target, "_qualified_op_name", ""))
    return name in FACTORIES or name.startswith("aten::new_") or name.endswith("_like")


@contextmanager
def factories_left_alone(graph_module: GraphModule) -> Iterator[None]:
    """Keep annotators away from factory nodes while the block runs.

    An annotated ``full`` has keyword arguments that torchao up to 0.15 refuses in prepare
    (pytorch/executorch#18322), and a domain of its own that its consumers need not share.
    """
    with hidden_from_annotators([n for n in graph_module.graph.nodes if is_factory(n)]):
        yield
