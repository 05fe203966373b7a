"""Upstream's tests run through ours, one that ends its process included; each difference from stock has a reason."""

from importlib.metadata import version

import arm_suite
import pytest
from arm_suite import SAMPLE, SEEDED, SEEDS, Records
from arm_suite_table import KEPT, KINDS, PAGE, Difference, Reason, differences, page, read, reason_of, reasons

KEPT_RELEASES = sorted(path.stem for path in KEPT.glob("*.txt"))
TESTS = """
import os
import pytest
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.backends.arm.util._factory import create_partitioner, create_quantizer

SPEC = TosaCompileSpec("TOSA-1.0+INT")

def test_all_are_safe():
    by_name = TOSAPartitioner(SPEC), TOSAQuantizer(SPEC)
    assert isinstance(by_name[0], TOSAPartitioner) and isinstance(by_name[1], TOSAQuantizer)
    for each in (*by_name, create_partitioner(SPEC), create_quantizer(SPEC)):
        assert type(each).__name__.startswith("Safe")

def test_ends_its_process():
    os._exit(9)

@pytest.mark.xfail(strict=True)
def test_passes_where_a_failure_is_expected():
    pass

@pytest.mark.xfail
def test_fails_as_expected():
    raise FileNotFoundError("a board")
"""


def test_each_test_gets_our_classes_and_a_result(tmp_path):
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "test_it.py").write_text(TESTS)
    ids = [f"test_it.py::{line[4:-3]}" for line in TESTS.splitlines() if line.startswith("def ")]
    records = Records(tmp_path, tmp_path / "suite")
    records.run_shard("reject", ids)
    found = records.results("reject")
    assert [found[name]["outcome"] for name in ids] == ["passed", "died", "xpassed", "xfailed"]
    assert (found[ids[0]]["partitioners"], found[ids[0]]["quantizers"]) == (2, 2)
    assert found[ids[1]]["why"] == "the process ended with status 9"
    assert "a board" in found[ids[3]]["why"]
    records.run_shard("stock", ids[:1])
    assert records.results("stock")[ids[0]]["outcome"] == "failed"


def test_each_seed_reaches_the_tests(tmp_path):
    """Upstream's own conftest seeds torch before each test with what the variable says."""
    (tmp_path / "suite").mkdir()
    test = "import os\n\ndef test_seed():\n    assert os.environ['TEST_SEED'] == '4'\n"
    (tmp_path / "suite" / "test_it.py").write_text(test)
    for seed, outcome in ((4, "passed"), (5, "failed")):
        (tmp_path / str(seed)).mkdir()
        records = Records(tmp_path / str(seed), tmp_path / "suite", seed=seed)
        records.run_shard("reject", ["test_it.py::test_seed"])
        assert records.results("reject")["test_it.py::test_seed"]["outcome"] == outcome
    assert "TEST_SEED" in (arm_suite.suite() / "conftest.py").read_text()


def test_a_reason_fits_by_test_and_by_both_outcomes():
    reason = Reason("test_add.*scalar", "passed", "failed", "left-out", "why")
    difference = Difference("ops/test_add.py::test_scalar", "reject", "passed", "failed")
    assert reason_of(difference, [reason]) is reason
    assert reason_of(Difference("ops/test_add.py::test_scalar", "reject", "passed", "died"), [reason]) is None
    assert reason_of(Difference("ops/test_add.py::test_tensor", "reject", "passed", "failed"), [reason]) is None


@pytest.mark.parametrize("release", KEPT_RELEASES)
def test_each_difference_from_stock_has_a_reason_and_each_reason_a_difference_and_no_process_ends(release):
    found, known = list(differences(read(release))), reasons()
    assert [each for each in found if reason_of(each, known) is None] == []
    assert {reason_of(each, known) for each in found} == set(known)
    assert {each.kind for each in known} <= KINDS.keys()
    assert [each for each in found if each.ours == "died"] == []


def test_the_page_is_what_was_kept():
    assert PAGE.read_text() == page(read(KEPT_RELEASES[-1]), reasons())


@pytest.mark.skipif(version("executorch") not in KEPT_RELEASES, reason="this release's are not kept")
def test_the_sample_is_of_what_is_kept_and_passes():
    outcomes = read(version("executorch")).outcomes
    assert {outcomes[name][1] for name in SAMPLE.read_text().splitlines()} == {"passed"}
    assert {outcomes[name][1] for name in SEEDED.read_text().splitlines()} == {"passed"}
    assert len(set(SEEDS)) > 2


def test_each_test_of_the_sample_has_its_day():
    names = [str(number) for number in range(10)]
    days = [arm_suite.todays(names, 3, day) for day in range(3)]
    assert sorted(name for day in days for name in day) == names
    assert arm_suite.todays(names, 1, 5) == names
