"""Inputs that exercise a delegate's domain: random, at the zero point, at both ends, mixed, or loud beside quiet."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from safe_arm.core.island import QUANTIZE, QParams, is_dequantize, op_name
from safe_arm.core.programs import Program, constants
from safe_arm.verification.delegate import user_inputs
from safe_arm.verification.evaluation import (
    EndlessLoopError,
    EvaluationError,
    evaluated,
)
from safe_arm.verification.index_ranges import MOVES, index_range, writes_to

#: Largest distance from a code, in codes, of floats that are quantised first thing: they are never near a tie.
_JITTER = 0.4
#: Factor by which the extremes of a float input exceed the quantiser's range.
_BEYOND = 1.5
#: Largest magnitude of a code of 32 bits: that of a product of two codes of 8 bits, less their zero points. What is
#: computed exactly from larger ones may overflow, and all codes of 32 bits do not fit into memory.
_LARGEST_CODE = 255 * 255
#: Number of patches of a patchwork; at least two are random.
PATCHES = 6
Interval = tuple[int, int]
#: Range of integers that are neither codes nor indices themselves.
_INT8 = (-128, 127)
#: Range of integers that no index is computed from.
_UNLIMITED = (-math.inf, math.inf)
#: Largest integers to try instead, from 0, where an index computed from that range leads beyond its table.
_SMALLER = (127, 63, 31, 15, 7, 3, 1, 0)
#: Largest distance from the zero point, in codes, of the values of a quiet row.
_QUIET = 2
#: Number of sets of inputs that ``stimuli`` makes, and the number that do where each is expensive.
STIMULI = 6
FEWEST = 2


@dataclass(frozen=True)
class Stimulus:
    """One set of inputs of a delegate.

    Attributes:
        name: its name in a report.
        inputs: one tensor for each user input, in the delegate's order.
    """

    name: str
    inputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class _Domain:
    """The domain of one input: codes from ``low`` to ``high``, at rest ``zero``; floats in steps of ``scale``.

    Indices to write to are ``unique``, as TOSA's SCATTER requires: the result of writing twice is undefined.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    low: float
    high: float
    zero: float
    scale: float = 1.0
    quantised: bool = True
    unique: bool = False

    def random(self, generator: torch.Generator) -> Tensor:
        if self.unique:
            number = int(self.high) + 1 - int(self.low)
            indices = torch.randperm(number, generator=generator)
            return self._distinct(indices + int(self.low))
        if self.dtype.is_floating_point and not self.quantised:
            return torch.randn(self.shape, generator=generator).to(self.dtype)
        # All codes are shuffled, each equally often: a single entry of a table may be wrong.
        number = int(self.high) + 1 - int(self.low)
        shuffled = torch.randperm(max(self._count, number), generator=generator)
        shuffled = shuffled[: self._count] % number
        codes = shuffled.reshape(self.shape) + int(self.low)
        if not self.dtype.is_floating_point:
            return codes.to(self.dtype)
        uniform = torch.rand(self.shape, generator=generator, dtype=torch.float64)
        jitter = (uniform * 2 - 1) * _JITTER
        return ((codes - self.zero + jitter) * self.scale).to(self.dtype)

    def random_with_halves(self, generator: torch.Generator) -> Tensor:
        """Return random values; half of the real floats are multiples of 0.5, where rounding and comparing change."""
        value = self.random(generator)
        if self.quantised or not self.dtype.is_floating_point:
            return value
        halves = (value * 4).round() / 2 + 0.0  # No zero is negative.
        chosen = torch.rand(self.shape, generator=generator) < 0.5
        return torch.where(chosen, halves, value)

    def shifted(self, generator: torch.Generator, towards: float) -> Tensor:
        """Return random values, all shifted a quarter of the way towards one end."""
        value = self.random(generator)
        if self.unique or self.dtype == torch.bool:
            return value
        step = 1.0
        rest = 0.0
        if self.dtype.is_floating_point:
            step = self.scale
            rest = self.zero
        low = (self.low - rest) * step
        high = (self.high - rest) * step
        by = float(int((towards - self.zero) / 4)) * step
        return (value.to(torch.float64) + by).clamp(low, high).to(self.dtype)

    def _distinct(self, indices: Tensor) -> Tensor:
        """Return distinct indices in the input's shape; they repeat if the input is larger."""
        times = -(-self._count // len(indices))
        repeated = indices.repeat(times)[: self._count]
        return repeated.reshape(self.shape).to(self.dtype)

    @property
    def _count(self) -> int:
        """The number of elements of the input."""
        return torch.Size(self.shape).numel()

    def filled(self, code: float) -> Tensor:
        if self.unique:
            upwards = torch.arange(int(self.low), int(self.high) + 1)
            return self._distinct(upwards.flip(0) if code == self.high else upwards)
        if self.dtype.is_floating_point:
            value = (code - self.zero) * self.scale
            if self.quantised:
                value *= _BEYOND
            return torch.full(self.shape, value, dtype=self.dtype)
        return torch.full(self.shape, int(code)).to(self.dtype)

    def alternating(self) -> Tensor:
        if self.unique:
            return self.filled(self.high)
        odd = torch.arange(self._count).reshape(self.shape) % 2 == 1
        return torch.where(odd, self.filled(self.high), self.filled(self.low))

    def uneven(self, generator: torch.Generator, place: int) -> Tensor:
        """Return rows at both extremes beside rows near the zero point, so that one value is loud and another quiet.

        Values that are loud together hide a product that is too large for 32 bits: the root or the mean that it is
        divided by is as loud.

        Args:
            generator: chooses the rows.
            place: the number of this input of the delegate; the first row of every other input is loud and its last one
                is quiet, and the other way round.
        """
        if self.unique or self.dtype == torch.bool or not self._count:
            return self.random(generator)
        inner = 2 if len(self.shape) > 3 else 1
        loud = torch.rand(self.shape[:-inner], generator=generator) < 0.5
        loud.view(-1)[-1] = place % 2 == 1
        loud.view(-1)[0] = place % 2 == 0
        chosen = loud.reshape(loud.shape + (1,) * min(inner, len(self.shape)))
        return torch.where(chosen, self.alternating(), self._near_zero(generator))

    def _near_zero(self, generator: torch.Generator) -> Tensor:
        """Return random values at most two codes from the zero point, or small floats."""
        if self.dtype.is_floating_point and not self.quantised:
            return self.random(generator) / 100
        steps = torch.randint(-_QUIET, _QUIET + 1, self.shape, generator=generator)
        if self.dtype.is_floating_point:
            return (steps * self.scale).to(self.dtype)
        return (
            (steps + int(self.zero)).clamp(int(self.low), int(self.high)).to(self.dtype)
        )

    def patchwork(
        self,
        generator: torch.Generator,
        place: int,
        places: int,
    ) -> Tensor:
        """Return every kind of input side by side, random ones between them.

        Args:
            generator: makes the random values.
            place: the number of this input of the delegate; in half of the patches each input is at another extreme.
            places: the number of its inputs.
        """
        value = self.random_with_halves(generator)
        if self.unique or not value.numel():
            return value
        patches = self._patches(2 if places > 1 else 1)
        kinds = [
            self.filled(self.low),
            self.filled(self.high),
            self.filled(self.zero),
            self.alternating(),
        ]
        for number, kind in enumerate(kinds):
            second = PATCHES + (number + place) % PATCHES
            chosen = (patches == number) | (patches == second)
            value = torch.where(chosen, kind, value)
        return value

    def _patches(self, turns: int) -> Tensor:
        """Number the elements of an input by patch, in a grid over height and width if it has them."""
        down = 2 * turns
        across = PATCHES // 2
        if len(self.shape) > 2 and self.shape[-2] >= down and self.shape[-1] >= across:
            height, width = self.shape[-2:]
            rows = torch.arange(height) * down // height
            columns = torch.arange(width) * across // width
            return (rows[:, None] * across + columns).expand(self.shape)
        patches = torch.arange(self._count) * (turns * PATCHES) // self._count
        return patches.reshape(self.shape)


def stimuli(
    program: Program, count: int = STIMULI, state: Mapping[str, Tensor] | None = None
) -> Iterator[Stimulus]:
    """Yield the inputs a delegate is verified on; the same delegate gets the same ones.

    Args:
        program: the delegate's exported program, not lowered; its sizes numbers (concrete_sizes.py).
        count: the number of stimuli; if that is fewer than all, the second holds a patch of every kind.
        state: its parameters, buffers and constants by name; without them, an index computed from integers may lead
            beyond its table.
    """
    integers = _INT8 if state is None else _fitting(program, state)
    domains = _domains(program, integers, state)
    made = (_few if count < STIMULI else _all)(program, domains)
    yield from islice(made, count)


def _fitting(program: Program, state: Mapping[str, Tensor]) -> Interval:
    """Return the widest integers that a graph can be evaluated on, because it may compute an index from them."""
    if _domains(program, (0, 0), state) == _domains(program, (0, 1), state):
        return _INT8
    for integers in (_INT8, *((0, largest) for largest in _SMALLER)):
        try:
            for stimulus in _all(program, _domains(program, integers, state)):
                with suppress(EndlessLoopError):
                    evaluated(program, state, stimulus.inputs)
        except EvaluationError:
            continue
        return integers
    return _INT8


def _few(program: Program, domains: Sequence[_Domain]) -> Iterator[Stimulus]:
    everything = {each.name: each for each in _all(program, domains)}
    yield everything.pop("random")
    generator = torch.Generator().manual_seed(zlib.crc32(b"patchwork"))
    patched = [
        domain.patchwork(generator, place, len(domains))
        for place, domain in enumerate(domains)
    ]
    yield Stimulus("patchwork", tuple(patched))
    for name in ("all highest", "all lowest", "random again"):
        if name in everything:
            yield everything[name]


def _all(program: Program, domains: Sequence[_Domain]) -> Iterator[Stimulus]:
    def stimulus(name: str, of: Callable[[_Domain], Tensor]) -> Stimulus:
        return Stimulus(name, tuple(map(of, domains)))

    def seeded(name: str) -> torch.Generator:
        return torch.Generator().manual_seed(zlib.crc32(name.encode()))

    operators = set(map(op_name, program.graph.nodes))
    loops = "higher_order::while_loop" in operators
    generator = seeded("random")
    yield stimulus("random", lambda d: d.random(generator))
    if not loops:
        generator = seeded("random again")
        yield stimulus("random again", lambda d: d.random_with_halves(generator))
    else:  # Most loops go on while a value is large, or small: balanced values may end them in the first turn.
        generator = seeded("random, higher")
        yield stimulus("random, higher", lambda d: d.shifted(generator, d.high))
        yield stimulus("random, lower", lambda d: d.shifted(generator, d.low))
    if not domains:
        return
    yield stimulus("all zero", lambda d: d.filled(d.zero))
    yield stimulus("all lowest", lambda d: d.filled(d.low))
    yield stimulus("all highest", lambda d: d.filled(d.high))
    generator = seeded("uneven rows")
    uneven = [domain.uneven(generator, place) for place, domain in enumerate(domains)]
    yield Stimulus("uneven rows", tuple(uneven))


def _domains(
    program: Program, integers: Interval, state: Mapping[str, Tensor] | None
) -> list[_Domain]:
    """Return the domain of each input.

    Args:
        program: the delegate's exported program.
        integers: the range of those that are neither codes nor indices.
        state: its parameters, buffers and constants by name, if they are known.
    """
    known = {} if state is None else constants(program, state)
    return [_domain(node, integers, known) for node in user_inputs(program)]


def _domain(
    placeholder: Node, integers: Interval, known: Mapping[Node, Tensor]
) -> _Domain:
    value = placeholder.meta["val"]
    shape = tuple(value.shape)
    dtype = value.dtype
    readers = list(_readers(placeholder))
    if dtype.is_floating_point:
        q = _first(node for node in readers if op_name(node) == QUANTIZE)
        if q is None:
            return _Domain(shape, dtype, -8.0, 8.0, 0.0, quantised=False)
        low, high = _codes(q)
        return _Domain(shape, dtype, low, high, q.zero_point, q.scale)
    q = _first(filter(is_dequantize, readers))
    if q is not None:
        low, high = _codes(q)
        return _Domain(shape, dtype, low, high, q.zero_point)
    if dtype == torch.bool:
        return _Domain(shape, dtype, 0, 1, 0)
    lowest, highest = index_range(placeholder, known) or _UNLIMITED
    least, largest = integers
    if math.isinf(lowest):
        lowest = max(torch.iinfo(dtype).min, least)
    if math.isinf(highest):
        highest = largest
    unique = writes_to(placeholder)
    return _Domain(shape, dtype, lowest, highest, max(lowest, 0), unique=unique)


def _codes(q: QParams) -> Interval:
    """Return the least and the largest code that is tried."""
    if q.qmax <= _LARGEST_CODE:
        return q.qmin, q.qmax
    return -_LARGEST_CODE, _LARGEST_CODE


def _first(nodes: Iterable[Node]) -> QParams | None:
    """Return the parameters of the first node that has static per-tensor ones."""
    for node in nodes:
        q = QParams.of(node)
        if q is not None:
            return q
    return None


def _readers(node: Node) -> Iterator[Node]:
    """Yield what reads a value, directly or through operators that only move it or cast it."""
    for user in node.users:
        yield user
        if op_name(user) in MOVES and node in tree_leaves(user.args[0]):
            yield from _readers(user)
