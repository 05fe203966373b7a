import gc
import logging
import os
import re
import sys
import zlib
from datetime import date
from functools import cache
from pathlib import Path

import cpu_seconds
import pytest
import slow_list
import wheels
from profiles import PROFILES

from safe_arm.core import versions

# Imports and collection make objects that stay: until the tests begin, there is nothing to collect.
gc.disable()
# ExecuTorch looks for model-converter and Vela on PATH only, and the environment is not activated.
os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
# The tests run in two processes; small nets gain nothing from threads in each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What is planted in one test must not be taken for proven in another; tests of the cache have one of their own.
os.environ["SAFE_ARM_PROOF_CACHE"] = "0"


#: ``-m`` with a marker that tests bear in the text of their files: no other file has to be imported.
_BY_TEXT = re.compile(r"(architectures|browser|corpus|docs|proof|seeds|vulkan)( and not \w+)*")
#: Tells pytest in every process that is started to measure coverage too, in a directory where there is no package.
_MEASURES = "SLIPCOVER_ENABLED"


def pytest_configure(config):
    if config.getoption("numprocesses", None):
        wheels.patched()  # found out once, for all workers


def pytest_terminal_summary(terminalreporter):
    edited = wheels.patched() if wheels.were_looked_at() else []
    if edited:
        shown = ", ".join(edited[:3]) + (f" and {len(edited) - 3} more" if len(edited) > 3 else "")
        terminalreporter.write_line(f"edited by hand: {shown}; nothing recorded of these wheels was used")


def pytest_sessionstart(session):
    if "PYTEST_XDIST_WORKER" in os.environ:
        session.config.measures = os.environ.pop(_MEASURES, None)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    if getattr(session.config, "measures", None):
        os.environ[_MEASURES] = session.config.measures


def pytest_addoption(parser, pluginmanager):
    parser.addoption("--every", type=int, default=1, metavar="N", help="Run about one test in N, others each day.")
    today = date.today().toordinal()
    parser.addoption("--day", type=int, default=today, metavar="N", help="The day, counted from the year 1.")
    pluginmanager.register(cpu_seconds)


def pytest_ignore_collect(collection_path, config):
    asked = _BY_TEXT.fullmatch(config.option.markexpr)
    if not asked or collection_path.suffix != ".py":
        return None
    return f"mark.{asked[1]}" not in collection_path.read_text() or None


def pytest_collection_finish():
    """What the modules imported stays: leave it out of garbage collection, and collect less often than by default.

    The versions of what is installed stay, too: half the partitioners and quantisers ask for them. Pytest would capture
    torch's trace, for which each export then formats its stack.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    versions.version = cache(versions.version)
    if "torch" in sys.modules:
        from operator_tables import filled_quickly
        from quick_passes import made_quickly
        from torch._logging import _internal

        filled_quickly()
        made_quickly()
        _internal.trace_log = logging.Logger("untraced")
    if "safe_arm.quantizer.safe_quantizers" in sys.modules:
        import index_arithmetic

        index_arithmetic.watch()


def pytest_collection_modifyitems(config, items):
    often = slow_list.often(items)
    for item in items:
        if item not in often:
            item.add_marker("slow")
        if slow_list.name_of(item).partition("::")[0] in slow_list.UNIT:
            item.add_marker("unit")
    lost = slow_list.lost(items)
    if lost and not any("::" in each for each in config.args):
        raise pytest.UsageError(f"tests/slow.txt names tests that are no more: {', '.join(lost)}")
    number = config.getoption("--every")
    day = config.getoption("--day")
    left_out = {item for item in items if (zlib.crc32(item.nodeid.encode()) + day) % number}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(params=PROFILES)
def profile(request):
    """A profile of quantised nets; a test that asks for it runs in each."""
    return request.param


@pytest.fixture(params=("ethos-u55-128", "ethos-u85-256"))
def ethos_u(request):
    """An Ethos-U; a test that asks for it runs on each."""
    return request.param


@pytest.fixture
def by_measurement_alone(monkeypatch):
    """No invariants between passes or on the interface: only what a delegate computes can give a fault away."""
    from safe_arm import SafeArmPassManager, seams

    monkeypatch.setattr(SafeArmPassManager, "invariants", ())
    monkeypatch.setattr(seams, "fits", lambda program: lambda flatbuffer: None)


@pytest.fixture(autouse=True)
def nothing_of_the_users_changes(request, monkeypatch):
    """No tensor of a graph module that any test hands to a safe quantiser has other bits afterwards.

    What a net itself writes, its state and what it learns in training, is its own to change.
    """
    float_run = sys.modules.get("safe_arm.quantizer.proof.float_run")
    if float_run is None or "changes_weights" in request.keywords:
        yield
        return
    from users_tensors import unchanged

    with unchanged(monkeypatch, float_run.FloatRun):
        yield


@pytest.fixture(autouse=True)
def nothing_is_a_fallback_without_a_reason(monkeypatch):
    """A property of every net that any test partitions, nested graphs and higher-order operators included."""
    session = sys.modules.get("safe_arm.partitioner.session")
    if session is None:
        yield
        return
    from safe_arm.partitioner.collect import LEFT_OVER

    unexplained = []

    def watched(*args, real=session.report_of):
        report = real(*args)
        outside = [verdict for verdict in report.verdicts if not verdict.delegate]
        unexplained.extend(v.name for v in outside if not v.reasons or v.reason == LEFT_OVER)
        return report

    monkeypatch.setattr(session, "report_of", watched)
    yield
    assert unexplained == []
