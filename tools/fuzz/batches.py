"""Cases by number: a batch of hypothesis' cases has a seed of its own, so that any number can be had again."""

import re
from collections.abc import Iterator

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.database import InMemoryExampleDatabase

from tools.fuzz.cases import Case
from tools.fuzz.grammar import cases

#: How many cases a batch has.
BATCH = 20
#: For each, how many are drawn: hypothesis likes to draw what it has drawn already, a little changed.
_DRAWN = 2
_QUIET = tuple(HealthCheck)


def profile(examples: int, *phases: Phase) -> settings:
    """Return settings that depend on nothing but a seed."""
    return settings(
        max_examples=examples, phases=phases, database=InMemoryExampleDatabase(), deadline=None,
        suppress_health_check=_QUIET, derandomize=False,
    )  # fmt: skip


def batch(number: int) -> list[Case]:
    """Return the cases of one batch, always the same ones, no two of which differ in numbers alone."""
    drawn: dict[str, Case] = {}

    @seed(number)
    @profile(BATCH * _DRAWN, Phase.generate)
    @given(cases())
    def collect(case: Case) -> None:
        drawn.setdefault(re.sub(r"[^a-z]", "", case.source), case)

    collect()
    return list(drawn.values())[1 : BATCH + 1]  # the first is the smallest there is, in every batch


def numbered(first_seed: int, count: int, start: int = 0) -> Iterator[tuple[int, Case]]:
    """Yield the cases numbered from ``start``, up to so many; a batch of too few leaves numbers out."""
    last = start + count
    for index in range(start // BATCH, -(-last // BATCH)):
        for number, case in enumerate(batch(first_seed * 1_000_003 + index), index * BATCH):
            if start <= number < last:
                yield number, case
