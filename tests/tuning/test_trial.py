"""Trials: the front, the best, and the log that a later run goes on with."""

import json
import math
from dataclasses import replace

from safe_arm.tuning.quantisation_choice import Choice
from safe_arm.tuning.trial import Budget, Trial, TrialLog, best_of, cliff, front


def trial(value, cost, proven=True, **operators):
    return Trial(Choice(operators=operators), value, value, cost, "cycles", proven)


def test_the_front_has_no_trial_that_another_beats_and_none_that_is_not_proven():
    kept = [trial(10, 100), trial(20, 150), trial(30, 400)]
    beaten = [trial(15, 160), trial(10, 120), trial(30, 401)]
    assert front([*beaten, *kept[::-1], trial(99, 1, proven=False)]) == kept


def test_the_best_is_the_cheapest_that_reaches_the_target_else_the_most_accurate_proven_one():
    trials = [trial(10, 100), trial(31, 500), trial(30, 400), trial(90, 1, proven=False)]
    assert best_of(trials, 30) == trials[2]
    assert best_of(trials, 80) == trials[1]
    assert best_of(trials[3:], 80) is None


def test_within_a_budget_the_best_is_the_cheapest_that_reaches_the_target_else_the_most_accurate():
    trials = [trial(10, 100), trial(31, 500), trial(35, 400), trial(40, 1000)]
    assert best_of(trials, 30, Budget(450)) == trials[2]
    assert best_of(trials, 30, Budget(500)) == trials[2]
    assert best_of(trials, 37, Budget(600)) == trials[2]
    assert best_of(trials, math.inf, Budget(1000)) == trials[3]
    assert best_of(trials, math.inf, Budget(50)) == trials[0], "nothing fits: the nearest"


def test_the_nearest_is_the_one_that_exceeds_its_limits_least():
    small, fast = replace(trial(20, 300), sram=1000), replace(trial(20, 100), sram=4000)
    assert best_of([small, fast], 0, Budget(90, 900)) == small
    assert not Budget(sram=4000).fits(trial(20, 300)), "an amount that is not known keeps no limit"
    assert Budget(sram=4000).fits(fast)
    assert Budget().fits(small)


def test_a_cliff_is_the_steepest_step_for_few_decibels():
    flat, fair, steep = trial(33.8, 144_000), trial(34.1, 200_000), trial(35.2, 15_800_000)
    beyond = trial(36, 900_000_000)
    assert cliff([flat, fair, steep, beyond], steep) == (fair, steep)
    assert cliff([flat, fair, steep], fair) is None
    assert cliff([trial(20, 100), trial(40, 1000)], trial(40, 1000)) is None, "many decibels are worth it"


def test_a_log_is_read_as_it_was_written(tmp_path):
    log = TrialLog(tmp_path / "t.jsonl", "this")
    first, failed = trial(10, 100, conv="int16"), Trial(Choice(), float("-inf"), None, float("inf"), "", False, "why")
    log.add(first)
    log.add(failed)
    log.add_probe("key", 12.5)
    again = TrialLog(tmp_path / "t.jsonl", "this")
    assert again.trials == {first.choice.key: first, failed.choice.key: failed}
    assert again.probes == {"key": 12.5}
    assert TrialLog(tmp_path / "t.jsonl", "that").trials == {}, "tried on something else"


def test_a_cost_by_another_estimator_is_not_used_and_the_accuracies_are(tmp_path):
    log = TrialLog(tmp_path / "t.jsonl", "this", "Vela 5.1.0")
    log.add(trial(10, 100))
    log.add_probe("key", 12.5)
    same = TrialLog(tmp_path / "t.jsonl", "this", "Vela 5.1.0")
    assert (len(same.trials), same.others) == (1, {})
    other = TrialLog(tmp_path / "t.jsonl", "this", "Vela 5.2.0")
    assert (other.trials, other.probes, other.others) == ({}, {"key": 12.5}, {"Vela 5.1.0": 1})
    other.add(trial(10, 270))
    again = TrialLog(tmp_path / "t.jsonl", "this", "Vela 5.2.0")
    assert [each.cost for each in again.trials.values()] == [270]


def test_a_line_cut_short_costs_that_line(tmp_path):
    path = tmp_path / "t.jsonl"
    TrialLog(path, "this").add(trial(10, 100))
    path.write_text(path.read_text() + "[]\n" + json.dumps({"subject": "this", "trial": {}})[:-4])
    log = TrialLog(path, "this")
    assert len(log.trials) == 1
    log.add(trial(20, 200, conv="int16"))
    assert len(TrialLog(path, "this").trials) == 2


def test_levels_are_set_and_taken_back():
    choice = Choice().with_levels(["a", "b"], "int16").with_levels(["b"], "float")
    assert choice.of_level("int16") == ("a",)
    assert choice.of_level("float") == ("b",)
    assert choice.with_levels(["a", "b"], None) == Choice()
    assert choice.key == Choice(operators={"b": "float", "a": "int16"}).key
