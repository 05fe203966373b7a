"""Each figure gets worse by itself, by more than is allowed, and since the operator that explains it."""

from dataclasses import replace

import pytest

from safe_arm.core.errors import UsageError
from safe_arm.gate.baseline import Allowed, Baseline, Operator
from safe_arm.gate.regressions import compared

FIRST = Operator("Conv2d first", "delegated", "", "float32[1, 4]", 100, 40.0)
SECOND = Operator("ReLU act", "delegated", "", "float32[1, 4]", 0, 38.0)
LAST = Operator("Conv2d last", "delegated", "", "float32[1, 2]", 50, 36.0)
FIGURES = {
    "share_delegated_percent": 90.0, "refused": 2, "demoted": 1, "delegates": 1, "sqnr_db": 36.0,
    "worst_sample_db": 33.0, "cycles": 1000, "planned_bytes": 512, "sram_bytes": 4096, "flash_bytes": 9000,
}  # fmt: skip
WAS = Baseline({"target": "vgf"}, FIGURES, (FIRST, SECOND, LAST), {"torch": "2.13.0"})
#: By name in the file: what the figure is worse at, and the text.
WORSE = {
    "share_delegated_percent": (75.5, "delegated 90.0 -> 75.5 % (-14.5)"),
    "refused": (3, "refused 2 -> 3 (+1)"),
    "demoted": (2, "demoted 1 -> 2 (+1)"),
    "delegates": (3, "delegates 1 -> 3 (+2)"),
    "sqnr_db": (35.0, "SQNR 36.0 -> 35.0 dB (-1.0)"),
    "worst_sample_db": (30.0, "SQNR of the worst sample 33.0 -> 30.0 dB (-3.0)"),
    "cycles": (1001, "cycles 1,000 -> 1,001 (+0.1 %)"),
    "planned_bytes": (1024, "planned memory 512 -> 1,024 bytes (+100.0 %)"),
    "sram_bytes": (4097, "SRAM 4,096 -> 4,097 bytes (+0.0 %)"),
    "flash_bytes": (9900, "flash 9,000 -> 9,900 bytes (+10.0 %)"),
}


def now(operators=WAS.operators, versions=None, **figures):
    return Baseline(WAS.subject, FIGURES | figures, operators, versions or WAS.versions)


def test_what_reads_the_same_is_no_change():
    changed = {each.name for each in compared(WAS, now(sqnr_db=35.9999, cycles=999)) if each.changed}
    assert changed == {"cycles"}


def worse(current, was=WAS):
    return {each.name: each for each in compared(was, current) if each.worse}


@pytest.mark.parametrize("key", WORSE)
def test_each_figure_is_worse_alone_and_better_the_other_way(key):
    value, text = WORSE[key]
    ((_, found),) = worse(now(**{key: value})).items()
    assert found.text == text
    assert found.since == "no operator changed, weights or options did"
    better = FIGURES[key] - (value - FIGURES[key])
    assert worse(now(**{key: better})) == {}


REFUSED = replace(SECOND, verdict="refused", reason="not implied.")
RAW = replace(SECOND, verdict="refused", reason="Node was not marked as quantized in the Arm backend.")
DEMOTED = replace(SECOND, name="Softplus act", verdict="demoted", reason="it dies")
NOISY = replace(SECOND, sqnr_db=30.0)
LARGER = replace(LAST, value="float32[1, 8]", macs=200)


@pytest.mark.parametrize(
    ("operators", "figures", "since"),
    [
        ((FIRST, REFUSED, LAST), {"refused": 3}, "ReLU act, refused: not implied"),
        ((FIRST, RAW, LAST), {"refused": 3}, "ReLU act, refused: it is not quantised"),
        ((FIRST, DEMOTED, LAST), {"demoted": 2}, "Softplus act, demoted: it dies"),
        ((replace(FIRST, verdict="demoted"), REFUSED, LAST), {"refused": 3}, "ReLU act, refused: not implied"),
        ((FIRST, SECOND, LARGER), {"cycles": 1200}, "Conv2d last, float32[1, 2] -> "),
        ((FIRST, SECOND, replace(LAST, macs=200)), {"cycles": 1200}, "Conv2d last, 50 -> 200 MACs"),
        ((FIRST, replace(SECOND, name="Conv2d new"), LAST), {"flash_bytes": 10000}, "Conv2d new, which is new"),
        ((FIRST, LAST), {"flash_bytes": 10000}, "ReLU act, which is gone"),
        ((FIRST, SECOND), {"flash_bytes": 10000}, "Conv2d last, which is gone"),
        ((FIRST, NOISY, replace(LAST, sqnr_db=20.0)), {"sqnr_db": 20.0}, "ReLU act, 38.0 -> 30.0 dB"),
    ],
)
def test_the_operator_that_explains_it_is_named(operators, figures, since):
    ((_, found),) = worse(now(operators, **figures)).items()
    assert found.since.startswith(since)


def test_what_was_off_the_accelerator_already_is_not_named():
    old = replace(FIRST, verdict="refused", reason="as before")
    was = replace(WAS, operators=(old, SECOND, LAST))
    found = worse(now((old, replace(SECOND, verdict="refused", reason="new"), LAST), refused=3), was)["refused"]
    assert found.since == "ReLU act, refused: new"


def test_tools_that_changed_are_named():
    found = worse(now(cycles=2000, versions={"torch": "2.14.0"}))["cycles"]
    assert found.since == "no operator changed, but torch 2.13.0 -> 2.14.0"


VELA_51 = replace(WAS, versions={"torch": "2.13.0", "ethos-u-vela": "5.1.0"})
VELA_52 = {"torch": "2.13.0", "ethos-u-vela": "5.2.0"}


@pytest.mark.parametrize("cycles", [2700, 300])
def test_cycles_by_another_estimator_are_neither_worse_nor_better(cycles):
    current = now(cycles=cycles, versions=VELA_52)
    assert worse(current, VELA_51) == {}
    (found,) = (each for each in compared(VELA_51, current) if each.estimators)
    assert found.text == f"cycles 1,000 -> {cycles:,}: another estimator, Vela 5.1.0 -> 5.2.0"


@pytest.mark.parametrize("vela", ["5.1.0", None])
def test_cycles_by_the_same_or_an_unknown_estimator_are_compared(vela):
    versions = {"torch": "2.13.0"} | ({"ethos-u-vela": vela} if vela else {})
    assert worse(now(cycles=2700, versions=versions), VELA_51).keys() == {"cycles"}


def test_all_other_figures_are_compared_across_estimators():
    figures = {key: value for key, (value, _) in WORSE.items() if key != "cycles"}
    assert len(worse(now(versions=VELA_52, **figures), VELA_51)) == len(WORSE) - 1


def test_equal_cycles_by_another_estimator_need_no_word():
    assert not any(each.estimators for each in compared(VELA_51, now(versions=VELA_52)))


@pytest.mark.parametrize(
    ("allowed", "figures", "fails"),
    [
        (Allowed(cycles_percent=10), {"cycles": 1100}, False),
        (Allowed(cycles_percent=10), {"cycles": 1101}, True),
        (Allowed(memory_percent=1), {"flash_bytes": 9090}, False),
        (Allowed(memory_percent=1), {"flash_bytes": 9091}, True),
        (Allowed(), {"sqnr_db": 35.95}, False),
        (Allowed(sqnr_db=2), {"sqnr_db": 34.5}, False),
        (Allowed(sqnr_db=2), {"sqnr_db": 33.5}, True),
        (Allowed(100, 100, 100), {"refused": 3}, True),
    ],
)
def test_what_is_allowed_is_no_failure(allowed, figures, fails):
    assert bool(worse(now(**figures), replace(WAS, allowed=allowed))) is fails


def test_what_was_not_measured_before_is_no_failure():
    was = replace(WAS, figures={name: value for name, value in FIGURES.items() if name != "sqnr_db"})
    (found,) = (each for each in compared(was, WAS) if each.name == "SQNR")
    assert (found.was, found.worse, found.text) == (None, False, "SQNR 36.0 dB")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"figures": {**FIGURES, "cycles": None}}, "has the cycles, which has no value now; --update"),
        ({"subject": {"target": "tosa"}}, "of target vgf, not tosa"),
    ],
)
def test_a_figure_that_is_gone_and_another_target_are_refused(changed, says):
    with pytest.raises(UsageError, match=says):
        compared(WAS, replace(WAS, **changed))
