"""Every operator of torch's OpInfo database with one sample of moderate size, its tensors drawn anew as normal values.

Where normal values lie outside an operator's domain, the same shapes are drawn positive, between 0 and 1, or above 1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn as nn
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from benchmarks.quality.subjects import Entry, LeftOut, Sample, Subject

#: Samples of an operator that are looked at, and how large a tensor of one may be.
_LOOKED_AT, _SMALLEST, _LARGEST, _RANK = 40, 2, 4096, 4
_TRIED = 8
_DOMAINS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda drawn: drawn,
    lambda drawn: drawn.abs() + 0.1,
    lambda drawn: drawn.sigmoid(),
    lambda drawn: drawn.abs() + 1.0,
)


class Call(nn.Module):
    """A call of an operator, of which the float tensors are inputs and all other arguments are fixed.

    Args:
        op: the operator.
        arguments: all arguments, flat; those that are float tensors are replaced.
        structure: how positional and named arguments are made of them.
    """

    def __init__(self, op: Callable[..., Any], arguments: list[Any], structure: Any) -> None:
        super().__init__()
        self.op, self.arguments, self.structure = op, arguments, structure

    def forward(self, *inputs: Tensor) -> Any:
        given = iter(inputs)
        arguments = []
        for argument in self.arguments:
            arguments.append(next(given) if _is_drawn(argument) else argument)
        args, kwargs = tree_unflatten(arguments, self.structure)
        return self.op(*args, **kwargs)


def _is_drawn(argument: object) -> bool:
    return isinstance(argument, Tensor) and argument.is_floating_point()


@torch.no_grad()
def _subject(info: Any) -> Subject:
    if torch.float32 not in info.dtypes:
        raise LeftOut("no float32")
    arguments, structure = _sample(info)
    _check_is_determined(info.op)
    call = Call(info.op, arguments, structure).eval()
    for domain in _DOMAINS:
        if _is_defined(call, arguments, domain):
            return Subject(call, partial(_drawn, arguments, domain), calibrated=32)
    raise LeftOut("no domain in which all values are finite")


def _is_defined(call: Call, arguments: list[Any], domain: Callable[[Tensor], Tensor]) -> bool:
    """Tell whether all values of a few samples are finite.

    The normal values are multiples of a half here, 0 among them, as codes are: a pole shows.
    """
    generator = torch.Generator().manual_seed(0)
    for _ in range(_TRIED):
        sample = _drawn(arguments, lambda drawn: domain((2 * drawn).round() / 2), generator)
        tensors = [output for output in tree_leaves(call(*sample)) if isinstance(output, Tensor)]
        if not tensors:
            raise LeftOut("no output is a tensor")
        if any(each.is_complex() or each.layout != torch.strided for each in tensors):
            raise LeftOut("an output is complex or sparse")
        if not all(bool(each.isfinite().all()) for each in tensors):
            return False
    return True


def _check_is_determined(op: Callable[..., Any]) -> None:
    """Leave out an operator that gives random numbers, or memory that nobody wrote to."""
    if "empty" in getattr(op, "__name__", ""):
        raise LeftOut("its values are undefined")
    code = getattr(op, "__code__", None)
    if code is not None and "wrapper_set_seed" in code.co_names:
        raise LeftOut("its values are random")


def _sample(info: Any) -> tuple[list[Any], Any]:
    """Return the flat arguments of the largest sample that is not too large, and how they are nested."""
    best: tuple[int, list[Any], Any] | None = None
    for number, sample in enumerate(info.sample_inputs("cpu", torch.float32, requires_grad=False)):
        if number == _LOOKED_AT:
            break
        arguments, structure = tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
        sizes = [tensor.numel() for tensor in tensors if _is_drawn(tensor)]
        if not sizes or max(tensor.dim() for tensor in tensors) > _RANK:
            continue
        size = max(sizes)
        if min(sizes) > 0 and _SMALLEST <= size <= _LARGEST and (best is None or size > best[0]):
            best = size, arguments, structure
    if best is None:
        raise LeftOut(f"no sample of rank up to {_RANK} with {_SMALLEST} to {_LARGEST} values")
    return best[1], best[2]


def _drawn(arguments: list[Any], domain: Callable[[Tensor], Tensor], generator: torch.Generator) -> Sample:
    drawn = []
    for argument in arguments:
        if _is_drawn(argument):
            drawn.append(domain(torch.randn(argument.shape, generator=generator)).to(argument.dtype))
    return tuple(drawn)


def _entries() -> list[Entry]:
    entries = []
    for info in op_db:
        name = f"{info.name}-{info.variant_test_name}" if info.variant_test_name else info.name
        entries.append(Entry(f"a/{name}", partial(_subject, info)))
    return entries


ENTRIES = _entries()
