"""PyTorch's own samples of its operators, those its tests take: arguments that none of us chose.

Each sample is a net of one call, its float tensors the inputs, of values between the smallest and the largest of the
sample's, which the operator is defined for.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import islice
from operator import getitem
from typing import Any

import torch
import torch.nn as nn
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tests.fuzz.cases import Case
from tests.fuzz.drawn_config import drawn_config
from tests.fuzz.program_source import written

#: Samples an operator may give, samples looked at for them, elements a tensor may have.
EACH, LOOKED_AT, ELEMENTS = 10, 60, 4096


class _OneCall(nn.Module):
    """A sample's call with its float tensors to be given, its other tensors constants."""

    def __init__(self, call: Any, sample: Any) -> None:
        super().__init__()
        self.call = call
        self.leaves, self.spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        self.given = [index for index, each in enumerate(self.leaves) if _is_float(each)]

    def forward(self, *inputs):
        leaves = list(self.leaves)
        for index, value in zip(self.given, inputs, strict=True):
            leaves[index] = value
        first, rest, named = pytree.tree_unflatten(leaves, self.spec)
        results = pytree.tree_leaves(self.call(first, *rest, **named))
        return tuple(each for each in results if isinstance(each, Tensor))


def _is_float(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float32


def _exported(call: Any, sample: Any) -> tuple[ExportedProgram, list[Tensor]]:
    net = _OneCall(call, sample)
    inputs = [net.leaves[index].detach().clone() for index in net.given]
    program = torch.export.export(net, tuple(inputs))
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    if not targets or any(map(_is_undefined, targets)):
        raise ValueError("no values that can be compared")
    return program, inputs


def _is_undefined(target: Any) -> bool:
    """Whether an operator's values are random, what memory happens to hold, sparse, or computed by Python of sizes."""
    if not isinstance(target, torch._ops.OpOverload):
        return target is not getitem
    return any(word in str(target) for word in ("empty", "sparse")) or torch.Tag.nondeterministic_seeded in target.tags


def _cases_of(operator: Any) -> Iterator[tuple[str, tuple]]:
    """Yield the sources and inputs of an operator's samples; what PyTorch cannot export is left out."""
    known = set()
    # To the end: a generator that is collected while a later sample is exported switches gradients on in its graph.
    for sample in list(operator.sample_inputs("cpu", torch.float32))[:LOOKED_AT]:
        tensors = [each for each in pytree.tree_leaves((sample.input, sample.args, sample.kwargs)) if _is_float(each)]
        if not tensors or any(each.layout != torch.strided or each.numel() > ELEMENTS for each in tensors):
            continue
        try:
            program, values = _exported(operator.op, sample)
            source, inputs = written(program)
        except Exception:
            continue
        if (source, inputs) not in known and len(inputs) == len(values):
            known.add((source, inputs))
            yield source, tuple(each.around(value) for each, value in zip(inputs, values, strict=True))


def numbered(seed: int, count: int, start: int = 0) -> Iterator[tuple[int, Case]]:
    """Yield cases with their numbers: those of PyTorch's operator N are N * EACH and those that follow."""
    from torch.testing._internal.common_methods_invocations import op_db

    of_floats = [each for each in op_db if torch.float32 in each.dtypes]
    for index, operator in enumerate(of_floats[start // EACH : -(-(start + count) // EACH)], start // EACH):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number, (source, inputs) in enumerate(islice(_cases_of(operator), EACH), index * EACH):
                if start <= number < start + count:
                    yield number, Case(source, inputs, drawn_config(seed * 1_000_000 + number), number)
