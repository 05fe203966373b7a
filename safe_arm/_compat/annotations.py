"""How the Arm quantisers of each version recognise that a node is already taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch.fx import Node
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

from safe_arm._compat.upstream import ArmAnnotationInfo

Q_ANNOTATION_KEY = "quantization_annotation"
#: Set by the pattern matcher of the composable quantiser, the default from 1.4 on.
MATCHED_KEY = "quantizer_matched"


@contextmanager
def hidden_from_annotators(nodes: Iterable[Node]) -> Iterator[None]:
    """Make nodes look taken to both generations of annotators, and bare again afterwards.

    Nodes that carry an annotation already keep it.
    """
    hidden = [node for node in nodes if Q_ANNOTATION_KEY not in node.meta]
    for node in hidden:
        node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(_annotated=True)
        node.meta[MATCHED_KEY] = True
    try:
        yield
    finally:
        for node in hidden:
            node.meta.pop(Q_ANNOTATION_KEY, None)
            node.meta.pop(MATCHED_KEY, None)


def is_annotated(node: Node) -> bool:
    """Tell whether the Arm quantiser marked a node as one that computes with quantised values."""
    info = node.meta.get("custom", {}).get(ArmAnnotationInfo.CUSTOM_META_KEY)
    return bool(info and info.get("quantized"))
