"""Compare two TOSA graphs operator by operator."""

from __future__ import annotations

import difflib
from collections.abc import Iterator


def operators(flatbuffer: bytes) -> list[str]:
    """Each operator of a delegate with the name and shape of its first result, in order."""
    import tosa.TosaGraph
    from tosa.Op import Op

    names = {value: name for name, value in vars(Op).items() if isinstance(value, int)}
    graph = tosa.TosaGraph.TosaGraph.GetRootAs(flatbuffer, 0)
    blocks = [
        graph.Regions(r).Blocks(b) for r in range(graph.RegionsLength()) for b in range(graph.Regions(r).BlocksLength())
    ]
    found = []
    for block in blocks:
        tensors = [block.Tensors(index) for index in range(block.TensorsLength())]
        shapes = {t.Name(): str([int(t.Shape(d)) for d in range(t.ShapeLength())]) for t in tensors}
        for op in (block.Operators(index) for index in range(block.OperatorsLength())):
            result = op.Outputs(0)
            found.append(f"{names[op.Op()]} {result.decode()} {shapes.get(result, 'a shape')}")
    return found


def differences(stock: list[bytes], ours: list[bytes]) -> Iterator[str]:
    """Return the differences between the delegates of two lowerings, as lines of a diff without context."""
    before, after = ([line for flatbuffer in side for line in operators(flatbuffer)] for side in (stock, ours))
    lines = difflib.unified_diff(before, after, "stock", "safe_arm", lineterm="", n=0)
    return (line for line in lines if not line.startswith(("---", "+++", "@@")))
