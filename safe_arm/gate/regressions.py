"""What is worse than a baseline, by how much and since which operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from safe_arm.core.errors import UsageError
from safe_arm.gate.baseline import Allowed, Baseline, Operator


@dataclass(frozen=True)
class Comparison:
    """One figure beside the baseline's.

    Attributes:
        name: what a user calls it.
        was, now: None where it was not measured.
        worse: whether it is, by more than is allowed.
        since: the first operator that explains it, and how; empty if it is not worse.
        unit: of both numbers; empty for a count.
    """

    name: str
    was: float | None
    now: float | None
    worse: bool
    since: str = ""
    unit: str = ""

    @property
    def changed(self) -> bool:
        """Whether it reads differently: another machine rounds a signal-to-noise ratio's last digits otherwise."""
        return _number(self.was) != _number(self.now)

    @property
    def text(self) -> str:
        """What changed, and by how much: ``cycles 13,632 -> 15,000 (+10.0 %)``."""
        if self.was is None or self.now is None or self.was == self.now:
            return f"{self.name} {_number(self.now if self.now is not None else self.was)}{self.unit}"
        change = self.now - self.was
        relative = self.was and (self.unit == " bytes" or self.name == "cycles")
        by = (
            f"{100 * change / self.was:+.1f} %"
            if relative
            else f"{'+' if change > 0 else ''}{_number(change)}"
        )
        return (
            f"{self.name} {_number(self.was)} -> {_number(self.now)}{self.unit} ({by})"
        )


@dataclass(frozen=True)
class _Figure:
    """How a figure is compared.

    Attributes:
        key: its name in the file.
        name, unit: what a user reads.
        slack: how much worse it may be, given what was.
        culprit: whether an operator, which was another or None, makes it worse.
        higher: whether more of it is better.
    """

    key: str
    name: str
    unit: str
    slack: Callable[[Allowed, float], float]
    culprit: Callable[[Operator | None, Operator, Allowed], bool]
    higher: bool = False


def _exactly(allowed: Allowed, was: float) -> float:
    return 0.0


def _left(was: Operator | None, now: Operator, allowed: Allowed) -> bool:
    """Whether an operator is off the accelerator that was on it, or was not in the net."""
    return now.verdict != "delegated" and (was is None or was.verdict != now.verdict)


def _demoted(was: Operator | None, now: Operator, allowed: Allowed) -> bool:
    return now.verdict == "demoted" and _left(was, now, allowed)


def _refused(was: Operator | None, now: Operator, allowed: Allowed) -> bool:
    return now.verdict != "demoted" and _left(was, now, allowed)


def _noisier(was: Operator | None, now: Operator, allowed: Allowed) -> bool:
    if was is None or was.sqnr_db is None or now.sqnr_db is None:
        return False
    return was.sqnr_db - now.sqnr_db > allowed.sqnr_db


def _never(was: Operator | None, now: Operator, allowed: Allowed) -> bool:
    return False


def _of_cycles(allowed: Allowed, was: float) -> float:
    return was * allowed.cycles_percent / 100


def _of_memory(allowed: Allowed, was: float) -> float:
    return was * allowed.memory_percent / 100


_FIGURES = (
    _Figure("share_delegated_percent", "delegated", " %", _exactly, _left, higher=True),
    _Figure("refused", "refused", "", _exactly, _refused),
    _Figure("demoted", "demoted", "", _exactly, _demoted),
    _Figure("delegates", "delegates", "", _exactly, _left),
    _Figure(
        "sqnr_db",
        "SQNR",
        " dB",
        lambda allowed, was: allowed.sqnr_db,
        _noisier,
        higher=True,
    ),
    _Figure(
        "worst_sample_db",
        "SQNR of the worst sample",
        " dB",
        lambda allowed, was: allowed.sqnr_db,
        _noisier,
        higher=True,
    ),
    _Figure("cycles", "cycles", "", _of_cycles, _never),
    _Figure("planned_bytes", "planned memory", " bytes", _of_memory, _never),
    _Figure("sram_bytes", "SRAM", " bytes", _of_memory, _never),
    _Figure("flash_bytes", "flash", " bytes", _of_memory, _never),
)


def compared(was: Baseline, now: Baseline) -> tuple[Comparison, ...]:
    """Compare every figure that the baseline has.

    Raises:
        UsageError: they are of different targets or rules, or a figure of the baseline was not measured now.
    """
    require_same(was.subject, now.subject)
    return tuple(
        _compare(figure, was, now)
        for figure in _FIGURES
        if figure.key in {*was.figures, *now.figures}
    )


def require_same(was: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Check that a baseline is of what it is compared with, as far as both say.

    Raises:
        UsageError: it is of another target, or under other rules.
    """
    for name, value in was.items():
        if now.get(name, value) != value:
            what = name.replace("_", "-")
            raise UsageError(
                f"the baseline is of {what} {value}, not {now[name]}; give another, or --update it"
            )


def _compare(figure: _Figure, was: Baseline, now: Baseline) -> Comparison:
    before, after = was.figures.get(figure.key), now.figures.get(figure.key)
    if before is not None and after is None:
        raise UsageError(
            f"the baseline has the {figure.name}, which has no value now; --update leaves it out"
        )
    if before is None or after is None:
        return Comparison(figure.name, before, after, False, unit=figure.unit)
    loss = before - after if figure.higher else after - before
    worse = loss > figure.slack(was.allowed, before)
    since = _since(figure, was, now) if worse else ""
    return Comparison(figure.name, before, after, worse, since, figure.unit)


def _since(figure: _Figure, was: Baseline, now: Baseline) -> str:
    """Say which operator is the first that makes a figure worse, else which is the first that is another."""
    before = {operator.name: operator for operator in was.operators}
    for operator in now.operators:
        if figure.culprit(before.get(operator.name), operator, was.allowed):
            return _described(before.get(operator.name), operator)
    return next(_changes(was, now), _by_tools(was, now))


def _described(was: Operator | None, now: Operator) -> str:
    if now.verdict != "delegated" and (was is None or was.verdict != now.verdict):
        return f"{now.name}, {now.verdict}: {now.reason.rstrip('.')}"
    if was is None:
        return f"{now.name}, which is new"
    if was.value != now.value:
        return f"{now.name}, {was.value} -> {now.value}"
    if was.macs != now.macs:
        return f"{now.name}, {was.macs:,} -> {now.macs:,} MACs"
    if (
        was.sqnr_db is not None
        and now.sqnr_db is not None
        and was.sqnr_db != now.sqnr_db
    ):
        return f"{now.name}, {was.sqnr_db:.1f} -> {now.sqnr_db:.1f} dB"
    return f"{now.name}, {was.verdict} before"


def _changes(was: Baseline, now: Baseline) -> Iterator[str]:
    """Yield the operators that are not what they were, in graph order."""
    before = {operator.name: operator for operator in was.operators}
    after = {operator.name for operator in now.operators}
    for old, new in zip_longest(was.operators, now.operators):
        if (
            new is not None
            and (known := before.get(new.name)) != new
            and (known is None or _differs(known, new))
        ):
            yield _described(known, new)
        if old is not None and old.name not in after:
            yield f"{old.name}, which is gone"


def _differs(was: Operator, now: Operator) -> bool:
    return (was.verdict, was.value, was.macs) != (now.verdict, now.value, now.macs)


def _by_tools(was: Baseline, now: Baseline) -> str:
    """Say what else there is if every operator is what it was."""
    moved = [
        f"{name} {version} -> {now.versions[name]}"
        for name, version in was.versions.items()
        if now.versions.get(name, version) != version
    ]
    return (
        f"no operator changed, but {', '.join(moved)}"
        if moved
        else "no operator changed, weights or options did"
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
