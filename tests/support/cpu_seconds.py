"""A pytest plugin: the CPU seconds of every test, the twenty slowest, and which of them are over a limit.

CPU seconds are those of the test's process and of the processes that it started and waited for: setup, call and
teardown. A machine's own speed is measured with a fixed amount of Python, first and behind each test that is over the
limit, so that a limit means the same everywhere and whatever else runs.
"""

import resource
import statistics
import time
from collections.abc import Generator, Iterator
from typing import Any

import pytest

SHOWN = 20
#: How long ``_fixed_work`` takes on the machine that limits are meant for, in seconds.
REFERENCE = 0.05
_KEY = "cpu_seconds"
_SLOWNESS = "slowness"
_BEGIN = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--cpu-limit``, in seconds of the reference machine; 0 is no limit."""
    text = "Fail if a test takes more than N CPU seconds of the reference machine and is not marked as slow."
    parser.addoption("--cpu-limit", type=float, default=0, metavar="N", help=text)


def used() -> float:
    """Return the CPU seconds that this process and its ended children have taken."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _slowness() -> float:
    """Return how many times as long as the reference machine this one takes now."""
    return _fixed_work() / REFERENCE


def _fixed_work() -> float:
    """Return the CPU seconds of an amount of Python that is always the same, the median of three."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        table: dict[int, int] = {}
        for number in range(500_000):
            table[number % 1000] = table.get(number % 1000, 0) + number
        taken.append(time.process_time() - start)
    return statistics.median(taken)


class CpuSeconds:
    """The CPU seconds of every test that has run, by its id."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.slowness = max(1.0, _slowness()) if limit else 1.0
        self.seconds: dict[str, float] = {}
        self.allowed: set[str] = set()

    def take(self, report: pytest.TestReport) -> None:
        """Add what one phase of a test has taken, and take the slowest that the machine was."""
        properties = dict(report.user_properties)
        seconds = properties.get(_KEY, 0.0)
        self.seconds[report.nodeid] = max(seconds, self.seconds.get(report.nodeid, 0.0))
        self.slowness = max(self.slowness, properties.get(_SLOWNESS, 1.0))
        if "slow" in report.keywords:
            self.allowed.add(report.nodeid)

    def slowest(self) -> list[tuple[str, float]]:
        """Return the tests that took longest, the longest first."""
        return sorted(self.seconds.items(), key=lambda each: -each[1])[:SHOWN]

    def over(self) -> list[str]:
        """Return the tests over the limit that are not allowed to be."""
        if not self.limit:
            return []
        bound = self.limit * self.slowness
        return sorted(test for test, seconds in self.seconds.items() if seconds > bound and test not in self.allowed)

    def lines(self) -> Iterator[str]:
        """Say which tests took longest, and which are over the limit."""
        yield from (f"{seconds:7.1f} s  {test}" for test, seconds in self.slowest())
        over = self.over()
        if over:
            yield f"more than {self.limit:g} s x {self.slowness:.1f} (this machine) and not listed in tests/slow.txt:"
            yield from (f"{self.seconds[test]:7.1f} s  {test}" for test in over)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what a test of this process or of a worker used."""
        self.take(report)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print it below the tests."""
        if not self.seconds:
            return
        terminalreporter.section("CPU seconds of the slowest tests")
        for line in self.lines():
            terminalreporter.write_line(line)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a session that is green but for the limit."""
        if self.over() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_configure(config: pytest.Config) -> None:
    """Begin to add up, in the process that reports."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(CpuSeconds(config.getoption("--cpu-limit")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Remember what had been used when the test began."""
    item.stash[_BEGIN] = used()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Put into each report what the test has used until now."""
    report = yield
    seconds = used() - item.stash[_BEGIN]
    report.user_properties = [*report.user_properties, (_KEY, round(seconds, 3))]
    limit = item.config.getoption("--cpu-limit")
    if limit and seconds > limit:
        report.user_properties.append((_SLOWNESS, _slowness()))
    return report
