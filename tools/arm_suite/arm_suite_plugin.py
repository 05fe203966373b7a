"""A pytest plugin: ExecuTorch's own Arm tests with our classes in place of the stock ones, each result recorded.

pytest -p arm_suite_plugin --through propagate --record results.jsonl --select ids.txt .../executorch/backends/arm/test
"""

import json
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: What a test may run through: the stock classes, or ours under either policy.
THROUGH = ("stock", "reject", "propagate")
#: How much of a message is kept.
LENGTH = 600


class _StandIn(type):
    """A class by its name, whose instances are made by the stock class and then put through a function."""

    stock: type
    made_ours: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.made_ours(cls.stock(*args, **kwargs))

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.stock)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.stock)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.stock, name)


class Exchange:
    """Makes what tests get from stock's factories and classes ours, and knows what the test in progress made.

    Args:
        through: one of ``THROUGH``; stock's are counted only.
    """

    def __init__(self, through: str) -> None:
        self.through = through
        self.partitioners: list[Any] = []
        self.quantizers = 0

    def partitioner(self, stock: Any) -> Any:
        from safe_arm.recipes import safe_partitioner

        ours = stock if self.through == "stock" else safe_partitioner(stock, non_fuseable=self.through)
        self.partitioners.append(ours)
        return ours

    def quantizer(self, stock: Any) -> Any:
        from safe_arm.recipes import safe_quantizer

        self.quantizers += 1
        return stock if self.through == "stock" else safe_quantizer(stock)

    def stand_ins(self) -> dict[type, type]:
        """Return, by stock class, what stands in for it."""
        from safe_arm._compat import upstream

        pairs = (("Partitioner", self.partitioner), ("Quantizer", self.quantizer))
        found: dict[type, type] = {}
        for suffix, function in pairs:
            for target in ("TOSA", "EthosU", "Vgf"):
                stock = getattr(upstream, target + suffix)
                found[stock] = _StandIn(stock.__name__, (), {"stock": stock, "made_ours": staticmethod(function)})
        return found

    def put_into(self, modules: list[Any]) -> None:
        """Put the stand-ins where modules imported a stock class by name."""
        stand_ins = self.stand_ins()
        for module in modules:
            for name, value in list(vars(module).items()):
                if isinstance(value, type) and value in stand_ins:
                    setattr(module, name, stand_ins[value])

    def reasons(self) -> list[str]:
        """Return why the test in progress has operators outside the delegates, in short."""
        from safe_arm.partitioner.collect import AT_BORDER

        reports = [report for each in self.partitioners if (report := getattr(each, "report", None)) is not None]
        outside = (each for report in reports for each in report.verdicts if not each.delegate)
        reasons = (f"{each.op}: {each.reason}"[:LENGTH] for each in outside if each.reason != AT_BORDER)
        return list(dict.fromkeys(reasons))[:6]


@pytest.fixture(autouse=True)
def judged_from_the_net(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail where the float proof warns, or a tensor changes that a test handed to a safe quantiser."""
    if request.config.getoption("--through") == "stock":
        yield
        return
    from users_tensors import unchanged

    from safe_arm.core.errors import FloatProofWarning
    from safe_arm.quantizer.proof.float_run import FloatRun

    with unchanged(monkeypatch, FloatRun), warnings.catch_warnings():
        warnings.simplefilter("error", FloatProofWarning)
        yield


class Recorder:
    """Writes one line of JSON when a test begins and one when it has ended, with the seconds of CPU that it took."""

    def __init__(self, path: Path, exchange: Exchange) -> None:
        self._file = path.open("a", buffering=1)
        self._exchange = exchange
        self._result: dict[str, Any] = {}

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._exchange.partitioners.clear()
        self._exchange.quantizers = 0
        self._started = time.process_time()
        self._result = {"id": nodeid, "outcome": "passed"}
        self._write({"id": nodeid, "begun": time.time()})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = _outcome(report)
        if outcome != "passed":
            self._result.setdefault("why", _why(report))
        if self._result["outcome"] == "passed":
            self._result["outcome"] = outcome

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        exchange = self._exchange
        self._result |= {"seconds": round(time.process_time() - self._started, 2)}
        self._result |= {"partitioners": len(exchange.partitioners), "quantizers": exchange.quantizers}
        if exchange.through != "stock" and (reasons := exchange.reasons()):
            self._result["outside"] = reasons
        exchange.partitioners.clear()
        self._write(self._result)


def _outcome(report: pytest.TestReport) -> str:
    text = str(report.longrepr or "")
    if text.startswith("[XPASS(strict)]"):
        return "xpassed"
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.outcome == "skipped" else "xpassed"
    return report.outcome


def _why(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        place = f"{'/'.join(Path(crash.path).parts[-2:])}:{crash.lineno}"
        return f"{crash.message[:LENGTH]} ({place})"
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])[:LENGTH]
    return str(report.longrepr)[:LENGTH]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add whose classes the tests get, what is recorded and which tests are run."""
    group = parser.getgroup("safe_arm")
    group.addoption("--through", choices=THROUGH, default="propagate", help="Whose classes the tests get.")
    group.addoption("--record", type=Path, help="A file of JSON lines that gets each result.")
    group.addoption("--select", type=Path, help="A file with the ids to run, one a line; all when not given.")
    group.addoption("--list", type=Path, help="A file that gets every id collected, one a line.")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder."""
    exchange = Exchange(config.getoption("--through"))
    config.stash[_EXCHANGE] = exchange
    if record := config.getoption("--record"):
        config.pluginmanager.register(Recorder(record, exchange))


_EXCHANGE: pytest.StashKey[Exchange] = pytest.StashKey()


def _needs_board(item: pytest.Item) -> bool:
    """Whether a test ends on a board, its model or the VGF runner: stock's own marks say that it fails without one."""
    marks = [mark for mark in item.iter_markers("xfail") if mark.kwargs.get("raises") in (FileNotFoundError, TypeError)]
    if any("Corstone" in mark.kwargs.get("reason", "") for mark in marks):
        return True
    return "vgf" in item.name.lower() and any("model-converter" in str(m.kwargs) for m in item.iter_markers("skipif"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """List and select the tests, and give their modules the stand-ins."""
    if found := config.getoption("--list"):
        found.write_text("".join(f"{'board' if _needs_board(item) else 'host'} {item.nodeid}\n" for item in items))
    select = config.getoption("--select")
    if select is not None:
        chosen = set(select.read_text().splitlines())
        items[:] = [item for item in items if item.nodeid in chosen]
    from executorch.backends.arm.util import _factory

    # Modules of the tests, under whichever name they were imported.
    folder = str(config.rootpath)
    modules = [m for m in list(sys.modules.values()) if (getattr(m, "__file__", None) or "").startswith(folder)]
    config.stash[_EXCHANGE].put_into([_factory, *modules])
