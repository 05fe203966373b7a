"""Nets of NNSmith, a generator whose grammar none of us wrote: valid by constraint solving, random by seed.

A net is written out as ATen calls (``program_source.py``): a case of it runs, shrinks and is kept without NNSmith.
"""

import random
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy
import torch
import torch.nn as nn
from torch.export import ExportedProgram

from tools.fuzz.cases import Case, drawn_config
from tools.fuzz.program_source import written

#: Operators a net has, elements a tensor may have, milliseconds the solver has.
NODES, ELEMENTS, SOLVER = 6, 1024, 10_000


class _Wrapped(nn.Module):
    """An NNSmith net without what it measures on the way."""

    def __init__(self, native: Any) -> None:
        super().__init__()
        self.native = native
        for parameter in self.parameters():
            parameter.requires_grad_(parameter.is_floating_point())

    def forward(self, *inputs):
        values = dict(zip(self.native.ir.input_var(), inputs, strict=True))
        for function, arguments, results, _ in self.native.instructions:
            given = function(*(values[name] for name in arguments))
            values.update(zip(results, given if isinstance(given, (list, tuple)) else [given], strict=True))
        return tuple(values[name] for name in self.native.ir.leaf_var())


@cache
def _torch_model() -> Any:
    """NNSmith's model class for PyTorch, its operators known to the generator."""
    from nnsmith.abstract.extension import activate_ext
    from nnsmith.materialize import Model
    from nnsmith.materialize.torch import symbolnet

    model_class = Model.init("torch")
    model_class.add_seed_setter()
    symbolnet.check_type = lambda *args, **kwargs: None  # it knows no dtype that came with PyTorch 2
    activate_ext(opset=list(model_class.operators()), factory=None)
    return model_class


def _exported(seed: int) -> ExportedProgram:
    """Return the net of a seed as a program."""
    from nnsmith.abstract.dtype import DType
    from nnsmith.graph_gen import model_gen

    model_class = _torch_model()
    for reseed in (torch.manual_seed, random.seed, numpy.random.seed):
        reseed(seed)
    generator = model_gen(
        opset=list(model_class.operators()), method="symbolic-cinit", seed=seed, max_elem_per_tensor=ELEMENTS,
        max_nodes=NODES, timeout_ms=SOLVER, dtype_choices=[DType.float32],
    )  # fmt: skip
    model = model_class.from_gir(generator.make_concrete())
    inputs = tuple(torch.rand(list(each.shape)) for each in model.input_like.values())
    return torch.export.export(_Wrapped(model.torch_model.eval()), inputs)


def numbered(first_seed: int, count: int, start: int = 0) -> Iterator[tuple[int, Case]]:
    """Yield cases with their numbers, as the grammar's ``numbered`` does; a seed the generator fails on is left out."""
    for number in range(start, start + count):
        seed = first_seed * 1_000_000 + number
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                source, inputs = written(_exported(seed))
        except Exception:
            continue
        yield number, Case(source, inputs, drawn_config(seed), number)
