"""Look into a TOSA flatbuffer."""

import numpy as np


def _blocks(flatbuffer: bytes):
    import tosa.TosaGraph

    graph = tosa.TosaGraph.TosaGraph.GetRootAs(bytes(flatbuffer), 0)
    for r in range(graph.RegionsLength()):
        for b in range(graph.Regions(r).BlocksLength()):
            yield graph.Regions(r).Blocks(b)


def operators(flatbuffer: bytes) -> list[str]:
    """The operator names of a delegate, in order."""
    from tosa.Op import Op

    names = {value: name for name, value in vars(Op).items() if isinstance(value, int)}
    return [names[b.Operators(i).Op()] for b in _blocks(flatbuffer) for i in range(b.OperatorsLength())]


def constants(flatbuffer: bytes, dtype=np.int8) -> dict[str, np.ndarray]:
    """The constant tensors of a delegate, by name, read as one dtype."""
    found = {}
    for block in _blocks(flatbuffer):
        for i in range(block.TensorsLength()):
            tensor = block.Tensors(i)
            if tensor.DataLength():
                shape = tuple(int(tensor.Shape(d)) for d in range(tensor.ShapeLength()))
                data = np.frombuffer(tensor.DataAsNumpy().tobytes(), dtype=dtype)
                if data.size == int(np.prod(shape)):
                    found[tensor.Name().decode()] = data.reshape(shape)
    return found


def constant_of_shape(flatbuffer: bytes, shape: tuple[int, ...], dtype=np.int8) -> np.ndarray:
    (only,) = [array for array in constants(flatbuffer, dtype).values() if array.shape == shape]
    return only
