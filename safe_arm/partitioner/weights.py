"""The real weights for a trial: ``partition`` sees a program whose parameters are fake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor


class Weights:
    """Remembers the parameters of the programs a partitioner was shown before ``partition``.

    ``to_edge_transform_and_lower`` calls ``ops_to_not_decompose`` with the real program; the older
    ``to_edge(...).to_backend(...)`` does not, and then there is nothing to remember.
    """

    def __init__(self) -> None:
        self._seen: list[Mapping[str, Tensor]] = []

    def remember(self, program: Any) -> None:
        """Keep a reference to a program's parameters and buffers; nothing is copied."""
        others = [held for held in self._seen if held is not program.state_dict]
        self._seen = [*others[-7:], program.state_dict]

    def of(self, program: Any) -> tuple[dict[str, Tensor], bool]:
        """Return parameters and buffers for a program, and whether they are the real ones.

        Args:
            program: a program whose state is fake or real.

        Returns:
            The state by name; made-up values, good for finding crashes only, if the real ones were never seen.
        """
        wanted = program.state_dict
        if not any(isinstance(tensor, FakeTensor) for tensor in wanted.values()):
            return dict(wanted), True
        for held in reversed(self._seen):
            if all(_alike(held.get(name), tensor) for name, tensor in wanted.items()):
                return {name: held[name] for name in wanted}, True
        return {name: _made_up(tensor) for name, tensor in wanted.items()}, False


def _alike(real: Tensor | None, fake: Tensor) -> bool:
    return (
        real is not None and real.shape == fake.shape and real.dtype == fake.dtype and not isinstance(real, FakeTensor)
    )


def _made_up(fake: Tensor) -> Tensor:
    """Invent values no pass chokes on: floats from 0.5 to 1.5 (scales are positive), int8 weights, zeros elsewhere."""
    generator = torch.Generator().manual_seed(0)
    shape = tuple(fake.shape)
    if fake.dtype.is_floating_point:
        return (torch.rand(shape, generator=generator) + 0.5).to(fake.dtype)
    if fake.dtype == torch.int8:
        return torch.randint(-127, 128, shape, dtype=fake.dtype, generator=generator)
    return torch.zeros(shape, dtype=fake.dtype)
