"""Every planted fault is caught by the two inputs a dear delegate is run on, and by as many of the six as ever."""

import json

import pytest
from catching import RECORD, caught_by
from subtle_mutations import ALL as MUTATIONS

from safe_arm.verification.proof_cache import SWITCH
from safe_arm.verification.stimuli import FEWEST

pytestmark = pytest.mark.proof

FEW = {"random", "patchwork"}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)
def test_the_few_inputs_catch_it_and_the_many_no_less_than_before(mutation):
    caught = set(caught_by(mutation))
    assert caught & FEW
    assert caught >= set(json.loads(RECORD.read_text())[mutation.id])


def test_a_fault_is_not_kept_as_proven(monkeypatch, tmp_path):
    monkeypatch.setenv(SWITCH, str(tmp_path))
    first = caught_by(MUTATIONS[0])
    assert first == caught_by(MUTATIONS[0]) != []
    assert list(tmp_path.iterdir()) == []


def test_a_dear_delegate_is_run_on_as_many():
    assert len(FEW) == FEWEST
