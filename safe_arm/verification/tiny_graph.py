"""Write a TOSA graph of one CLAMP, run it in the reference model and look at every value: ``python -m`` this, PATH."""

import sys
from pathlib import Path

LOW = -3
HIGH = 5
SHAPE = (1, 8, 8, 4)


def tiny_graph() -> bytes:
    """Return the flatbuffer of a graph that clamps its input, int8 of ``SHAPE``, to [``LOW``, ``HIGH``]."""
    import tosa_serializer as ts

    graph = ts.TosaSerializer(
        "", targetMajor=1, targetMinor=0, targetPatch=0, targetDraft=False
    )
    graph.addInputTensor(
        ts.TosaSerializerTensor("x", list(SHAPE), ts.DType.INT8, data=None)
    )
    block = graph.currRegion.currBasicBlock
    block.addTensor("y", list(SHAPE), ts.DType.INT8)
    graph.addOutputTensor(block.tensors["y"])
    clamp = ts.TosaSerializerAttribute()
    low, high = (
        list(value.to_bytes(1, "little", signed=True)) for value in (LOW, HIGH)
    )
    clamp.ClampAttribute(low, high, ts.NanPropagationMode.PROPAGATE)
    graph.addOperator(ts.Op.CLAMP, ["x"], ["y"], clamp)
    return bytes(graph.serialize())


def main(path: str) -> None:
    """Write the graph to ``path`` and run it; exit with a sentence if a value is wrong."""
    import numpy as np
    import tosa_reference_model as model

    flatbuffer = tiny_graph()
    Path(path).write_bytes(flatbuffer)
    codes = np.arange(256, dtype=np.uint8).view(np.int8).reshape(SHAPE)
    (output,), status = model.run(
        flatbuffer, [codes], verbosity="LOW", initialize_variable_tensor_from_numpy=True
    )
    if status != model.GraphStatus.TOSA_VALID:
        sys.exit(f"the reference model calls a clamp {status.name}")
    if not np.array_equal(np.array(output), np.clip(codes, LOW, HIGH)):
        sys.exit("the reference model computes a clamp wrong")


if __name__ == "__main__":
    main(sys.argv[1])
