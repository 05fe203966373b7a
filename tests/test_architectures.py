"""Whole architectures: what is on record, and the same measured again (`make test-architectures`)."""

import pytest
from interpreter import ROOT

from benchmarks.architectures import ARCHITECTURES
from benchmarks.architectures.measure import POLICIES, results, rows_of
from benchmarks.architectures.table import fewer_than_stock, is_silent, page

RECORD = rows_of(ROOT / "tests" / "data" / "architectures-1.5.jsonl")
BESIDE_FLOAT = rows_of(ROOT / "tests" / "data" / "architectures-float-1.5.jsonl")
OURS = [row for row in RECORD if row["by"] in POLICIES]


def test_there_are_forty_and_what_is_on_record_is_there_under_both_policies():
    assert len(ARCHITECTURES) == 40
    nets = {row["net"] for row in OURS}
    assert nets <= set(ARCHITECTURES)
    assert {(row["net"], row["by"]) for row in OURS} == {(net, by) for net in nets for by in POLICIES}


def test_ours_are_right_and_delegated_at_least_as_stock_s_that_are_and_the_page_is_the_record():
    assert [row for row in OURS if row["outcome"] != "right"] == []
    assert [row for row in OURS if row["verified"] < row["delegates"]] == []
    assert fewer_than_stock(RECORD) == []
    assert (ROOT / "docs" / "architectures.md").read_text() == page(RECORD, BESIDE_FLOAT)


@pytest.mark.architectures
@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_is_right_under_both_policies(name, profile):
    for result in results(name, ARCHITECTURES[name](), profile, POLICIES):
        assert (result.outcome, result.reason) == ("right", "")
        known = [row for row in OURS if (row["net"], row["profile"], row["by"]) == (name, profile, result.by)]
        assert all((row["macs"], row["delegated"]) == (result.macs, result.delegated) for row in known)


def test_every_net_is_beside_its_float_net_and_the_float_proof_is_silent():
    assert {row["net"] for row in BESIDE_FLOAT} == set(ARCHITECTURES)
    assert [row["net"] for row in BESIDE_FLOAT if not is_silent(row)] == []
