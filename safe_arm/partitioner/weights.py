"""The real weights for a trial: ``partition`` sees a program whose parameters are fake."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram

from safe_arm._compat.graphs import originals


def weights_of(program: ExportedProgram) -> tuple[dict[str, Tensor], bool]:
    """Return a program's parameters and buffers with real values, and whether they are the true ones.

    Args:
        program: an edge program whose state is fake or real.

    Returns:
        The very tensors the fakes were made from; where one cannot be found made-up values, good for finding crashes.
    """
    fakes = [tensor for tensor in program.state_dict.values() if isinstance(tensor, FakeTensor)]
    found = originals(fakes)
    real = all(id(fake) in found for fake in fakes)
    state: dict[str, Tensor] = dict(program.state_dict)
    for name, tensor in state.items():
        if isinstance(tensor, FakeTensor):
            state[name] = found[id(tensor)] if id(tensor) in found else _made_up(tensor)
    return state, real


def _made_up(fake: Tensor) -> Tensor:
    """Invent values no pass chokes on: floats from 0.5 to 1.5 (scales are positive), int8 weights, zeros elsewhere."""
    generator = torch.Generator().manual_seed(0)
    shape = tuple(fake.shape)
    if fake.dtype.is_floating_point:
        value = (torch.rand(shape, generator=generator) + 0.5).to(fake.dtype)
    elif fake.dtype == torch.int8:
        value = torch.randint(-127, 128, shape, dtype=fake.dtype, generator=generator)
    else:
        value = torch.zeros(shape, dtype=fake.dtype)
    return torch.nn.Parameter(value, requires_grad=False) if isinstance(fake, torch.nn.Parameter) else value
