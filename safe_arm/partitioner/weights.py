"""The real weights for a trial: ``partition`` sees a program whose parameters are fake."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram

from safe_arm._compat.graphs import originals


def weights_of(program: ExportedProgram) -> tuple[dict[str, Tensor], bool]:
    """Return a program's parameters and buffers with real values, and tell whether they are the true ones.

    Args:
        program: an edge program whose state is fake or real.

    Returns:
        The very tensors the fakes were made from. Where one cannot be found, made-up values, good for finding crashes.
    """
    state: dict[str, Tensor] = dict(program.state_dict)
    fakes = [tensor for tensor in state.values() if isinstance(tensor, FakeTensor)]
    real = originals(fakes)
    for name, tensor in program.state_dict.items():
        if id(tensor) in real:
            state[name] = real[id(tensor)]
        elif isinstance(tensor, FakeTensor):
            state[name] = _made_up(tensor)
    return state, all(id(fake) in real for fake in fakes)


def _made_up(fake: Tensor) -> Tensor:
    """Make up values that every pass accepts: floats from 0.5 to 1.5 (scales are positive), int8 weights, or zeros."""
    generator = torch.Generator().manual_seed(0)
    shape = tuple(fake.shape)
    if fake.dtype.is_floating_point:
        value = (torch.rand(shape, generator=generator) + 0.5).to(fake.dtype)
    elif fake.dtype == torch.int8:
        value = torch.randint(-127, 128, shape, dtype=fake.dtype, generator=generator)
    else:
        value = torch.zeros(shape, dtype=fake.dtype)
    if isinstance(fake, torch.nn.Parameter):
        return torch.nn.Parameter(value, requires_grad=False)
    return value
