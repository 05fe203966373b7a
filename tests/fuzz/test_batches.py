"""Cases are data, and their numbers bring them back."""

from dataclasses import replace

import pytest

from tools.fuzz import nnsmith_nets
from tools.fuzz.batches import BATCH, batch, numbered
from tools.fuzz.building import samples
from tools.fuzz.cases import Case
from tools.fuzz.toolchain import built


def test_a_number_always_is_the_same_case_and_another_seed_another():
    cases = dict(numbered(3, 5))
    assert dict(numbered(3, 2, start=2)) == {number: case for number, case in cases.items() if number in (2, 3)}
    assert not set(cases.values()) & set(dict(numbered(4, 5)).values())


def test_a_case_survives_being_written_down():
    for case in batch(1):
        again = Case.from_json(case.to_json())
        assert again == case
        assert again.key == case.key != replace(case, seed=case.seed + 1).key


def test_most_nets_run_and_no_two_are_alike():
    cases = batch(2)
    runs = 0
    for case in cases:
        try:
            built(case)
            runs += 1
        except Exception:
            continue
    assert len({case.source for case in cases}) == len(cases) > BATCH // 2
    assert runs > len(cases) * 0.8


def test_calibration_and_comparison_are_on_other_inputs():
    case = next(case for case in batch(2) if case.inputs[0].shape)
    calibration, fresh = samples(case)
    assert len({float(sample[0].abs().sum()) for sample in (*calibration, *fresh)}) == 4


@pytest.mark.filterwarnings("ignore")
def test_nnsmith_gives_nets_that_run():
    pytest.importorskip("nnsmith")
    cases = dict(nnsmith_nets.numbered(1, 4))
    assert len(cases) > 1
    for case in cases.values():
        assert "torch.ops.aten" in case.source
        built(case)
