"""PyTorch's own samples of its operators and modules, those its tests take: arguments that none of us chose.

Each sample is a net of one call, its float tensors the inputs, of values between the smallest and the largest of the
sample's, which the operator is defined for.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import getitem
from typing import Any

import torch
import torch.nn as nn
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from tools.fuzz.cases import Case, drawn_config
from tools.fuzz.program_source import written

#: Samples an operator or module may give, samples looked at for them, elements a tensor may have.
EACH, LOOKED_AT, ELEMENTS = 10, 60, 4096

#: What is called, and its positional and named arguments.
Sample = tuple[Callable[..., Any], tuple, dict[str, Any]]


class _OneCall(nn.Module):
    """A sample's call with its float tensors to be given, its other tensors constants."""

    def __init__(self, sample: Sample) -> None:
        super().__init__()
        self.call = sample[0]
        self.leaves, self.spec = pytree.tree_flatten(sample[1:])
        self.given = [index for index, each in enumerate(self.leaves) if _is_float(each)]

    def forward(self, *inputs):
        leaves = list(self.leaves)
        for index, value in zip(self.given, inputs, strict=True):
            leaves[index] = value
        arguments, named = pytree.tree_unflatten(leaves, self.spec)
        results = pytree.tree_leaves(self.call(*arguments, **named))
        return tuple(each for each in results if isinstance(each, Tensor))


def _is_float(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float32


def _exported(sample: Sample) -> tuple[ExportedProgram, list[Tensor]]:
    net = _OneCall(sample)
    inputs = [net.leaves[index].detach().clone() for index in net.given]
    program = torch.export.export(net, tuple(inputs))
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    if not calls or any(map(_is_undefined, calls)):
        raise ValueError("no values that can be compared")
    return program, inputs


def _is_undefined(call: Node) -> bool:
    """Whether an operator's values are random, what memory happens to hold, sparse, or computed by Python of sizes."""
    target = call.target
    if not isinstance(target, torch._ops.OpOverload):
        return target is not getitem
    return any(word in str(target) for word in ("empty", "sparse")) or _is_random(call, target)


def _is_random(call: Node, target: torch._ops.OpOverload) -> bool:
    """Whether an operator draws numbers: one of training, as a dropout, does not without."""
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    declared = target._schema.arguments
    given = {each.name: each.default_value for each in declared if each.has_default_value()}
    given |= dict(zip((each.name for each in declared), call.args, strict=False)) | call.kwargs
    return bool(given.get("train", given.get("training", given.get("dropout_p", True))))


def _cases_of(samples: Sequence[Sample]) -> Iterator[tuple[str, tuple]]:
    """Yield the sources and inputs of samples; what PyTorch cannot export is left out."""
    known = set()
    for sample in samples:
        tensors = [each for each in pytree.tree_leaves(sample[1:]) if _is_float(each)]
        if not tensors or any(each.layout != torch.strided or each.numel() > ELEMENTS for each in tensors):
            continue
        try:
            program, values = _exported(sample)
            source, inputs = written(program)
        except Exception:
            continue
        if (source, inputs) not in known and len(inputs) == len(values):
            known.add((source, inputs))
            yield source, tuple(each.around(value) for each, value in zip(inputs, values, strict=True))


def _samples_of(listed: Any) -> list[Sample]:
    """Return the samples of an operator of PyTorch's list, or of a module of it."""
    if hasattr(listed, "sample_inputs"):
        # To the end: a generator that is collected while a later sample is exported switches gradients on in its graph.
        given = list(listed.sample_inputs("cpu", torch.float32))[:LOOKED_AT]
        return [(listed.op, (each.input, *each.args), each.kwargs) for each in given]
    options = {"device": "cpu", "dtype": torch.float32, "requires_grad": False, "training": False}
    samples = []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for each in listed.module_inputs_func(listed, **options)[:LOOKED_AT]:
            net = listed.module_cls(*each.constructor_input.args, **each.constructor_input.kwargs).eval()
            samples.append((net, tuple(each.forward_input.args), each.forward_input.kwargs))
    return samples


def listed(generator: str) -> list[Any]:
    """Return the operators or modules that PyTorch has samples of."""
    if generator == "operators":
        from torch.testing._internal.common_methods_invocations import op_db

        return [each for each in op_db if torch.float32 in each.dtypes]
    from torch.testing._internal.common_modules import module_db

    return list(module_db)


def numbered(generator: str, seed: int, count: int, start: int = 0) -> Iterator[tuple[int, Case]]:
    """Yield cases with their numbers: those of PyTorch's operator or module N are N * EACH and those that follow."""
    for index, each in enumerate(listed(generator)[start // EACH : -(-(start + count) // EACH)], start // EACH):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number, (source, inputs) in enumerate(islice(_cases_of(_samples_of(each)), EACH), index * EACH):
                if start <= number < start + count:
                    yield number, Case(source, inputs, drawn_config(seed * 1_000_000 + number), number)
