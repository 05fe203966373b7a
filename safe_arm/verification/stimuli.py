"""Inputs that exercise a delegate's input domain: random, at rest, at both ends, alternating, or all of it at once."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.node import Argument

from safe_arm.core.island import PASS_THROUGH, QUANTIZE, QParams, is_dequantize, op_name
from safe_arm.core.programs import Program
from safe_arm.verification.delegate import user_inputs
from safe_arm.verification.evaluation import (
    EndlessLoopError,
    EvaluationError,
    evaluated,
)

#: Floats that are quantised first thing lie so far from the middle of a code, in codes: never near a tie.
_JITTER = 0.4
#: How far beyond the quantiser's range the extremes of a float input go.
_BEYOND = 1.5
#: How many patches a patchwork has; two or more of them random.
PATCHES = 6
Interval = tuple[int, int]
#: Integers that are neither codes nor indices themselves.
_INT8 = (-128, 127)
#: How large others are at most, none of them negative, where what is computed of those leads beyond a table.
_SMALLER = (127, 63, 31, 15, 7, 3, 1, 0)
#: How many sets of inputs ``stimuli`` makes, and how few it makes do with where each is dear.
STIMULI, FEWEST = 6, 2


@dataclass(frozen=True)
class Stimulus:
    """One set of inputs of a delegate.

    Attributes:
        name: what a report calls it.
        inputs: one tensor for each user input, in the delegate's order.
    """

    name: str
    inputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class _Domain:
    """What one input may hold: codes from ``low`` to ``high``, at rest ``zero``; floats in steps of ``scale``.

    Indices to write to are ``unique``, as TOSA's SCATTER wants them; what writing twice gives is not defined anyway.
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
            return self._distinct(
                torch.randperm(int(self.high) + 1, generator=generator)
            )
        if self.dtype.is_floating_point and not self.quantised:
            return torch.randn(self.shape, generator=generator).to(self.dtype)
        codes = self._every_code(generator)
        if not self.dtype.is_floating_point:
            return codes.to(self.dtype)
        jitter = (
            torch.rand(self.shape, generator=generator, dtype=torch.float64) * 2 - 1
        ) * _JITTER
        return ((codes - self.zero + jitter) * self.scale).to(self.dtype)

    def random_with_halves(self, generator: torch.Generator) -> Tensor:
        """Random values, of real floats every other a multiple of a half, where rounding and comparing change over."""
        value = self.random(generator)
        if self.quantised or not self.dtype.is_floating_point:
            return value
        halves = (value * 4).round() / 2 + 0.0  # No zero is negative.
        return torch.where(
            torch.rand(self.shape, generator=generator) < 0.5, halves, value
        )

    def shifted(self, generator: torch.Generator, towards: float) -> Tensor:
        """Random values, all of them a quarter of the way closer to one end."""
        value = self.random(generator)
        if self.unique or self.dtype == torch.bool:
            return value
        floats = self.dtype.is_floating_point
        step, rest = (self.scale, self.zero) if floats else (1.0, 0.0)
        low, high = ((end - rest) * step for end in (self.low, self.high))
        by = float(int((towards - self.zero) / 4)) * step
        return (value.to(torch.float64) + by).clamp(low, high).to(self.dtype)

    def _every_code(self, generator: torch.Generator) -> Tensor:
        """Shuffle all codes into the shape, each as often as the next: one entry of a table may be wrong."""
        count, codes = (
            torch.Size(self.shape).numel(),
            int(self.high) + 1 - int(self.low),
        )
        shuffled = (
            torch.randperm(max(count, codes), generator=generator)[:count] % codes
        )
        return shuffled.reshape(self.shape) + int(self.low)

    def _distinct(self, indices: Tensor) -> Tensor:
        """Take as many of these as the input holds, in its shape; they repeat if it holds more."""
        count = torch.Size(self.shape).numel()
        return (
            indices.repeat(-(-count // len(indices)))[:count]
            .reshape(self.shape)
            .to(self.dtype)
        )

    def filled(self, code: float) -> Tensor:
        if self.unique:
            upwards = torch.arange(int(self.high) + 1)
            return self._distinct(upwards.flip(0) if code == self.high else upwards)
        if self.dtype.is_floating_point:
            beyond = 1.0 if not self.quantised or code == self.zero else _BEYOND
            return torch.full(
                self.shape, (code - self.zero) * self.scale * beyond, dtype=self.dtype
            )
        return torch.full(self.shape, int(code)).to(self.dtype)

    def alternating(self) -> Tensor:
        if self.unique:
            return self.filled(self.high)
        odd = torch.arange(torch.Size(self.shape).numel()).reshape(self.shape) % 2 == 1
        return torch.where(odd, self.filled(self.high), self.filled(self.low))

    def patchwork(self, generator: torch.Generator, place: int, places: int) -> Tensor:
        """Lay every kind of input out side by side, random ones between them.

        Args:
            generator: of the random values.
            place: which of the delegate's inputs this is; in half of the patches each input is at another extreme.
            places: how many inputs it has.
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
            value = torch.where(
                (patches == number) | (patches == PATCHES + (number + place) % PATCHES),
                kind,
                value,
            )
        return value

    def _patches(self, turns: int) -> Tensor:
        """Number the elements of an input by patch, in a grid over height and width where there are such."""
        down, across = 2 * turns, PATCHES // 2
        if len(self.shape) > 2 and self.shape[-2] >= down and self.shape[-1] >= across:
            height, width = self.shape[-2:]
            rows, columns = (
                torch.arange(height) * down // height,
                torch.arange(width) * across // width,
            )
            return (rows[:, None] * across + columns).expand(self.shape)
        count = torch.Size(self.shape).numel()
        return (torch.arange(count) * (turns * PATCHES) // count).reshape(self.shape)


def stimuli(
    program: Program, count: int = STIMULI, state: Mapping[str, Tensor] | None = None
) -> Iterator[Stimulus]:
    """Yield the inputs a delegate is verified on; the same delegate gets the same ones.

    Args:
        program: the delegate's exported program, not lowered; its sizes numbers (concrete_sizes.py).
        count: how many; of fewer than all, the second holds a patch of every kind.
        state: its parameters, buffers and constants by name; without them, what it computes of integers may lead beyond
            a table of its.
    """
    integers = _INT8 if state is None else _fitting(program, state)
    yield from islice(
        _few(program, integers) if count < STIMULI else _all(program, integers), count
    )


def _fitting(program: Program, state: Mapping[str, Tensor]) -> Interval:
    """Return the widest integers that a graph can be evaluated on: what it computes of them may index a table."""
    counting = [
        node
        for node in user_inputs(program)
        if _domain(node, (0, 0)).high != _domain(node, (0, 1)).high
    ]
    tried = (_INT8, *((0, largest) for largest in _SMALLER)) if counting else ()
    for integers in tried:
        if all(
            _is_evaluated(program, state, stimulus)
            for stimulus in _all(program, integers)
        ):
            return integers
    return _INT8


def _is_evaluated(
    program: Program, state: Mapping[str, Tensor], stimulus: Stimulus
) -> bool:
    try:
        evaluated(program, state, stimulus.inputs)
    except EndlessLoopError:
        return True
    except EvaluationError:
        return False
    return True


def _few(program: Program, integers: Interval) -> Iterator[Stimulus]:
    domains = [_domain(node, integers) for node in user_inputs(program)]
    everything = {each.name: each for each in _all(program, integers)}
    yield everything.pop("random")
    generator = torch.Generator().manual_seed(zlib.crc32(b"patchwork"))
    patched = (
        d.patchwork(generator, place, len(domains)) for place, d in enumerate(domains)
    )
    yield Stimulus("patchwork", tuple(patched))
    yield from (
        everything[name]
        for name in ("all highest", "all lowest", "random again")
        if name in everything
    )


def _all(program: Program, integers: Interval) -> Iterator[Stimulus]:
    domains = [_domain(node, integers) for node in user_inputs(program)]

    def stimulus(name: str, of: Callable[[_Domain], Tensor]) -> Stimulus:
        return Stimulus(name, tuple(map(of, domains)))

    def seeded(name: str) -> torch.Generator:
        return torch.Generator().manual_seed(zlib.crc32(name.encode()))

    loops = any(
        op_name(node) == "higher_order::while_loop" for node in program.graph.nodes
    )
    generator = seeded("random")
    yield stimulus("random", lambda d: d.random(generator))
    if not loops:
        generator = seeded("random again")
        yield stimulus("random again", lambda d: d.random_with_halves(generator))
    else:  # Most loops go on while a value is large, or small: what is balanced may end them in the first turn.
        generator = seeded("random, higher")
        yield stimulus("random, higher", lambda d: d.shifted(generator, d.high))
        yield stimulus("random, lower", lambda d: d.shifted(generator, d.low))
    if not domains:
        return
    yield stimulus("all zero", lambda d: d.filled(d.zero))
    yield stimulus("all lowest", lambda d: d.filled(d.low))
    yield stimulus("all highest", lambda d: d.filled(d.high))
    yield stimulus("alternating extremes", _Domain.alternating)


def _domain(placeholder: Node, integers: Interval) -> _Domain:
    value = placeholder.meta["val"]
    shape, dtype = tuple(value.shape), value.dtype
    readers = list(_readers(placeholder))
    if dtype.is_floating_point:
        q = next(
            (
                q
                for node in readers
                if op_name(node) == QUANTIZE and (q := QParams.of(node))
            ),
            None,
        )
        if q is None:
            return _Domain(shape, dtype, -8.0, 8.0, 0.0, quantised=False)
        return _Domain(shape, dtype, q.qmin, q.qmax, q.zero_point, q.scale)
    q = next(
        (q for node in readers if is_dequantize(node) and (q := QParams.of(node))), None
    )
    if q is not None:
        return _Domain(shape, dtype, q.qmin, q.qmax, q.zero_point)
    if dtype == torch.bool:
        return _Domain(shape, dtype, 0, 1, 0)
    bounds = [
        bound
        for node in readers
        for bound in _index_bounds(node, {placeholder, *readers})
    ]
    if bounds:
        writes = any(op_name(node) in _WRITES for node in readers)
        return _Domain(shape, dtype, 0, min(bounds) - 1, 0, unique=writes)
    least, largest = integers
    return _Domain(shape, dtype, max(torch.iinfo(dtype).min, least), largest, 0)


def _readers(node: Node) -> Iterator[Node]:
    """Yield what reads a value, directly or through operators that only move it or cast it."""
    for user in node.users:
        yield user
        if (
            op_name(user) in PASS_THROUGH
            or "_to_dim_order_copy" in op_name(user)
            or op_name(user) in _MOVES
        ):
            yield from _readers(user)


_WRITES = frozenset(
    f"aten::{name}"
    for name in (
        "index_copy",
        "index_fill",
        "index_put",
        "index_put_",
        "scatter",
        "scatter_src",
    )
)
_SHIFTS = frozenset(
    ("bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__")
)
_MOVES = frozenset(
    ("aten::slice_copy", "aten::select_copy", "aten::_to_copy", "aten::to", "aten::cat")
)


def _index_bounds(reader: Node, moved: Collection[Node]) -> Iterator[int]:
    """Yield what an index, which may have been moved on the way, must stay below: a size, or the bits of a shift."""
    name = op_name(reader).removeprefix("aten::")

    def size(node: Argument, dim: Argument) -> int:
        return node.meta["val"].shape[dim]  # type: ignore

    if name in (
        "index_select",
        "gather",
        "index_copy",
        "scatter",
        "scatter_add",
        "index_fill",
        "scatter_src",
    ):
        yield size(reader.args[0], reader.args[1])
    elif name in _SHIFTS and reader.args[0] not in moved:
        yield torch.iinfo(reader.meta["val"].dtype).bits
    elif name == "embedding":
        yield size(reader.args[0], 0)
    elif name in ("index", "index_put", "index_put_") or name.startswith("index."):
        table = reader.args[0]
        yield from (
            size(table, dim)
            for dim, index in enumerate(reader.args[1])  # type: ignore[arg-type]
            if index in moved and index.meta["val"].dtype != torch.bool
        )
