"""Compare the figures of a program with a baseline: which are worse, by how much and since which operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from safe_arm.core.errors import UsageError
from safe_arm.core.plain_reasons import plain
from safe_arm.core.toolchain import VELA_PACKAGE
from safe_arm.gate.baseline import Allowed, Baseline, Operator


@dataclass(frozen=True)
class Comparison:
    """One figure beside the baseline's.

    Attributes:
        name: its name for a user.
        was, now: the baseline's value and the present one; None where it was not measured.
        since: the first operator that explains the loss; empty if it is not worse by more than is allowed.
        unit: the unit of both numbers; empty for a count.
        estimators: the two versions of the tool that estimated the numbers, if they differ and the numbers cannot be
            compared; empty otherwise.
    """

    name: str
    was: float | None
    now: float | None
    since: str = ""
    unit: str = ""
    estimators: str = ""

    @property
    def worse(self) -> bool:
        """True if it is worse by more than is allowed."""
        return bool(self.since)

    @property
    def changed(self) -> bool:
        """True if it reads differently; another machine rounds a signal-to-noise ratio's last digits otherwise."""
        return _number(self.was) != _number(self.now)

    @property
    def text(self) -> str:
        """The change and its size in words: ``cycles 13,632 -> 15,000 (+10.0 %)``."""
        was = self.was
        now = self.now
        if now is None:
            return f"{self.name} {_number(was)}{self.unit}"
        if was is None or was == now:
            return f"{self.name} {_number(now)}{self.unit}"
        if self.estimators:
            return f"{self.name} {_number(was)} -> {_number(now)}: another estimator, {self.estimators}"
        change = _number(now - was)
        if now > was:
            change = f"+{change}"
        if was and (self.unit == " bytes" or self.name == "cycles"):
            change = f"{100 * (now - was) / was:+.1f} %"
        return f"{self.name} {_number(was)} -> {_number(now)}{self.unit} ({change})"


@dataclass(frozen=True)
class _Figure:
    """A figure that is compared.

    Attributes:
        key: its name in the file.
        name, unit: its name and unit for a user.
        higher: true if more of it is better.
    """

    key: str
    name: str
    unit: str = ""
    higher: bool = False


_FIGURES = (
    _Figure("share_delegated_percent", "delegated", " %", higher=True),
    _Figure("refused", "refused"),
    _Figure("demoted", "demoted"),
    _Figure("delegates", "delegates"),
    _Figure("sqnr_db", "SQNR", " dB", higher=True),
    _Figure("worst_sample_db", "SQNR of the worst sample", " dB", higher=True),
    _Figure("cycles", "cycles"),
    _Figure("planned_bytes", "planned memory", " bytes"),
    _Figure("sram_bytes", "SRAM", " bytes"),
    _Figure("flash_bytes", "flash", " bytes"),
)


def compared(was: Baseline, now: Baseline) -> tuple[Comparison, ...]:
    """Compare every figure that the baseline has.

    Raises:
        UsageError: they are of different targets or rules, or a figure of the baseline was not measured now.
    """
    require_same(was.subject, now.subject)
    comparisons = []
    for figure in _FIGURES:
        if figure.key in was.figures or figure.key in now.figures:
            comparisons.append(_compare(figure, was, now))
    return tuple(comparisons)


def require_same(was: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Check that a baseline is of the same target and rules, as far as both name them.

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
    before = was.figures.get(figure.key)
    after = now.figures.get(figure.key)
    if before is not None and after is None:
        raise UsageError(
            f"the baseline has the {figure.name}, which has no value now; --update leaves it out"
        )
    estimators = ""
    since = ""
    if before is not None and after is not None and before != after:
        estimators = _estimators(figure, was, now)
        loss = before - after if figure.higher else after - before
        if not estimators and loss > _allowed_loss(figure, before, was.allowed):
            since = _since(figure, was, now)
    return Comparison(figure.name, before, after, since, figure.unit, estimators)


def _estimators(figure: _Figure, was: Baseline, now: Baseline) -> str:
    """Return both versions of Vela if a figure is its estimate and they differ; empty if the numbers can be compared.

    Vela 5.2 estimates up to 2.7 times the cycles of 5.1 for the same bytes.
    """
    if figure.key != "cycles":
        return ""
    before = was.versions.get(VELA_PACKAGE)
    after = now.versions.get(VELA_PACKAGE)
    if not before or not after or before == after:
        return ""
    return f"Vela {before} -> {after}"


def _allowed_loss(figure: _Figure, was: float, allowed: Allowed) -> float:
    if figure.unit == " dB":
        return allowed.sqnr_db
    if figure.unit == " bytes":
        return was * allowed.memory_percent / 100
    if figure.key == "cycles":
        return was * allowed.cycles_percent / 100
    return 0.0


def _since(figure: _Figure, was: Baseline, now: Baseline) -> str:
    """Describe the first operator that makes a figure worse, else the first that changed, else the tools that did."""
    before = was.by_name
    for operator in now.operators:
        old = before.get(operator.name)
        if _explains(figure, old, operator, was.allowed):
            return _described(old, operator)
    return next(_changes(was, now), "") or _by_tools(was, now)


def _explains(
    figure: _Figure, was: Operator | None, now: Operator, allowed: Allowed
) -> bool:
    """Tell whether an operator's change makes a figure worse; that is not known of cycles and bytes."""
    if figure.unit == " dB":
        if was is None or was.sqnr_db is None or now.sqnr_db is None:
            return False
        return was.sqnr_db - now.sqnr_db > allowed.sqnr_db
    if figure.key == "cycles" or figure.unit == " bytes":
        return False
    is_demoted = now.verdict == "demoted"
    if figure.key in ("refused", "demoted") and is_demoted != (figure.key == "demoted"):
        return False
    return _is_off_now(was, now)


def _is_off_now(was: Operator | None, now: Operator) -> bool:
    """Tell whether an operator is off the accelerator that was on it, or was not in the net."""
    return now.verdict != "delegated" and (was is None or was.verdict != now.verdict)


def _described(was: Operator | None, now: Operator) -> str:
    if _is_off_now(was, now):
        return f"{now.name}, {now.verdict}: {plain(now.reason).rstrip('.')}"
    if was is None:
        return f"{now.name}, which is new"
    if was.value != now.value:
        return f"{now.name}, {was.value} -> {now.value}"
    if was.macs != now.macs:
        return f"{now.name}, {was.macs:,} -> {now.macs:,} MACs"
    old = was.sqnr_db
    new = now.sqnr_db
    if old is None or new is None or old == new:
        return f"{now.name}, {was.verdict} before"
    return f"{now.name}, {old:.1f} -> {new:.1f} dB"


def _changes(was: Baseline, now: Baseline) -> Iterator[str]:
    """Yield a description of the operators that changed, in graph order."""
    before = was.by_name
    after = now.by_name
    for old, new in zip_longest(was.operators, now.operators):
        if new is not None:
            own = before.get(new.name)
            if own is None or _kept(own) != _kept(new):
                yield _described(own, new)
        if old is not None and old.name not in after:
            yield f"{old.name}, which is gone"


def _kept(operator: Operator) -> tuple[str, str, int]:
    return operator.verdict, operator.value, operator.macs


def _by_tools(was: Baseline, now: Baseline) -> str:
    """Return the tools that changed, for two programs whose operators are the same."""
    changed = []
    for name, version in was.versions.items():
        new_version = now.versions.get(name, version)
        if new_version != version:
            changed.append(f"{name} {version} -> {new_version}")
    if changed:
        return f"no operator changed, but {', '.join(changed)}"
    return "no operator changed, weights or options did"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
