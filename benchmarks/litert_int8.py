"""An exported net, converted and quantised to int8 by LiteRT's tools; it runs in the lane ``litert``.

PYTHON benchmarks/litert_int8.py FOLDER reads net.pt2 and samples.pt from the folder, and writes net.tflite there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import litert_torch
import numpy as np
import torch
from ai_edge_litert.interpreter import Interpreter
from ai_edge_quantizer import quantizer, recipe


def input_names(model: Path) -> tuple[str, list[str]]:
    """Return the name of a model's one signature, and those of its inputs."""
    ((name, signature),) = Interpreter(str(model)).get_signature_list().items()
    return name, signature["inputs"]


def converted(folder: Path, samples: list[tuple[torch.Tensor, ...]]) -> Path:
    """Convert the exported net, still in float; its inputs keep PyTorch's order of dimensions."""
    net = torch.export.load(folder / "net.pt2").module()
    path = folder / "float.tflite"
    litert_torch.convert(net, samples[0]).export(str(path))
    return path


def quantise(model: Path, samples: list[tuple[torch.Tensor, ...]], output: Path) -> None:
    """Write the model with int8 weights, activations, inputs and outputs."""
    signature, names = input_names(model)
    values: list[dict[str, np.ndarray]] = []
    for sample in samples:
        values.append({name: value.numpy() for name, value in zip(names, sample, strict=True)})
    tool = quantizer.Quantizer(str(model), recipe.static_wi8_ai8())
    tool.quantize(tool.calibrate({signature: values})).export_model(str(output))


def main() -> None:
    """Convert and quantise the net of a folder."""
    folder = Path(sys.argv[1])
    samples = torch.load(folder / "samples.pt")
    quantise(converted(folder, samples), samples, folder / "net.tflite")


if __name__ == "__main__":
    main()
