"""The search on nets with a planted weak spot: it finds the spot, and nothing cheaper would do."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.vgf import VgfCompileSpec
from planted_spots import NETS

from safe_arm import SafeArmError, SafeArmPartitioner, SafeVgfQuantizer
from safe_arm.quantizer.proof import float_run
from safe_arm.quantizer.proof.fidelity import compared
from safe_arm.tuning import search as search_module
from safe_arm.tuning.metrics import Goal
from safe_arm.tuning.quantisation_choice import LEVELS, Choice
from safe_arm.tuning.search import Search, _union
from safe_arm.tuning.spots import Spot, reading, spots_of
from safe_arm.tuning.trial import Budget, Trial, TrialLog
from safe_arm.tuning.workbench import Workbench


def silent(bench, start, levels=LEVELS, float_on_cpu=True):
    """A search that tells nothing."""
    return Search(bench, start, levels, float_on_cpu, lambda line: None, lambda *_: nullcontext(lambda: None))


def vgf(profile="TOSA-1.0+INT+FP+int16", **options):
    spec = VgfCompileSpec(profile)
    options = {"non_fuseable": "propagate", **options}
    return lambda: SafeVgfQuantizer(spec), lambda: SafeArmPartitioner(spec, **options)


def searching(name, goal, makers, start=None, log=None, **options):
    net, samples = NETS[name]()
    program = torch.export.export(net, samples[0])
    quantizer, partitioner = makers
    log = log or TrialLog(Path(mkdtemp()) / "t.jsonl", "it")
    bench = Workbench(program, samples, quantizer, partitioner, goal, log)
    return bench, silent(bench, start or Choice(), **options)


def cheapest_of_all_subsets(search, found, at_least):
    """The least cost of all subsets of the six worst spots in 16 bits that reach a target.

    A subset of which a part is enough costs more than that part and is not lowered.
    """
    bench, start = search.bench, replace(found.best.choice, operators={})
    spots = [spot for spot in search._worst(start) if not spot.moves and spot.operators]
    enough = []
    for count in range(len(spots) + 1):
        for chosen in map(frozenset, combinations(spots, count)):
            choice = start.with_levels([name for spot in chosen for name in spot.operators], "int16")
            if not any(part < chosen for part, _ in enough) and bench.probe(choice) >= at_least:
                enough.append((chosen, choice))
    trials = [bench.trial(choice) for _, choice in enough]
    return min(trial.cost for trial in trials if trial.proven)


@pytest.mark.parametrize(
    ("name", "at_least", "spots"),
    [("depthwise", 30.0, {"conv2d_1": "int16", "asinh": "int16"}), ("attention", 35.2, {"linear": "int16"})],
)
def test_no_subset_of_the_six_worst_spots_is_a_tenth_cheaper(name, at_least, spots):
    _, search = searching(name, Goal("SQNR", at_least), vgf(), float_on_cpu=False)
    found = search.run()
    assert not found.why
    assert found.best.proven
    assert found.best.value >= at_least
    assert spots.items() <= found.best.choice.operators.items()
    assert found.best.cost <= 1.1 * cheapest_of_all_subsets(search, found, at_least)


def test_without_16_bits_it_stays_float():
    options = {"levels": ("float",), "float_on_cpu": False}
    _, search = searching("depthwise", Goal("SQNR", 30.0), vgf("TOSA-1.0+INT+FP"), **options)
    found = search.run()
    assert not found.why
    assert set(found.best.choice.operators.values()) == {"float"}
    assert "conv2d_1" in found.best.choice.operators


def test_a_trial_has_the_decibels_that_every_report_shows(monkeypatch):
    """On the samples that every report compares, which are not all of many."""
    monkeypatch.setattr(float_run, "SAMPLES", 3)
    bench, _ = searching("good", Goal("SQNR", 30.0), vgf())
    trial = bench.trial(Choice())
    quantised = bench.quantised(Choice()).module
    (comparison,) = bench._lowered(torch.export.export(quantised, bench.samples[0])).float_comparisons
    assert trial.value == trial.sqnr_db == comparison.sqnr
    assert trial.worst_sample_db == comparison.worst_sqnr < comparison.sqnr
    actual, wanted = [[[net(*sample)] for sample in bench.samples[:3]] for net in (quantised, bench.net)]
    assert comparison.samples == 3
    assert comparison.outputs == compared(["output 0"], actual, wanted)


def test_a_good_net_stays_as_it_is_and_is_not_tried_again(tmp_path):
    path = tmp_path / "t.jsonl"
    _, search = searching("good", Goal("SQNR", 30.0), vgf(), log=TrialLog(path, "it"))
    first = search.run()
    assert not first.why
    assert [trial.choice for trial in first.trials] == [first.best.choice] == [Choice()]
    bench, search = searching("good", Goal("SQNR", 30.0), vgf(), log=TrialLog(path, "it"))
    assert search.run().best == first.best
    assert bench.measured == [0, 0]


def test_a_trial_that_is_not_proven_is_no_result():
    _, search = searching("good", Goal("SQNR", 30.0), vgf("TOSA-1.0+INT+FP", verify_budget=1))
    with pytest.raises(SafeArmError, match="is not proven"):
        search.run()
    assert search.best is None


class Staircase:
    """A workbench on which each of three spots gains decibels for its own cost, without a model."""

    GAINS: ClassVar = {"a": (6.0, 20), "b": (5.0, 50), "c": (4.0, 10_000)}
    samples = ()

    def __init__(self, goal):
        self.goal, self.lowered = goal, []

    def probe(self, choice):
        return 20.0 + sum(self.GAINS[name][0] for name in choice.operators)

    def trial(self, choice):
        self.lowered.append(choice)
        cost = 100.0 + sum(self.GAINS[name][1] for name in choice.operators)
        return Trial(choice, self.probe(choice), self.probe(choice), cost, "cycles", True)

    def quantised(self, choice):
        return SimpleNamespace(module=None, reference=None)


@pytest.fixture
def stairs(monkeypatch):
    def stairs(at_least, cycles=None, levels=("int16",)):
        spots = {name: Spot(name, (name,), (), False, "", cost, ()) for name, (_, cost) in Staircase.GAINS.items()}
        monkeypatch.setattr(search_module, "spots_of", lambda *graphs: spots)
        bench = Staircase(Goal("SQNR in dB", at_least, budget=Budget(cycles)))
        search = silent(bench, Choice(), levels)
        monkeypatch.setattr(search, "_worst", lambda choice: list(spots.values()))
        return search.run()

    return stairs


def test_a_target_is_reached_within_the_budget_as_cheaply_as_without(stairs):
    assert stairs(25, 200).best == stairs(25).best
    assert list(stairs(25).best.choice.operators) == ["a"]


@pytest.mark.parametrize(
    ("at_least", "reached", "why"),
    [
        (float("inf"), True, ""),
        (35, False, "the best that is proven has an SQNR of 31 dB, with int16 tried; beyond the budget, 10,"),
    ],
)
def test_the_most_accurate_within_a_budget_is_found_and_what_a_target_would_cost(stairs, at_least, reached, why):
    found = stairs(at_least, 200)
    assert (not found.why) == (not why) == reached
    assert why in found.why
    assert sorted(found.best.choice.operators) == ["a", "b"]


def test_where_nothing_is_within_the_budget_the_nearest_is_named(stairs):
    found = stairs(float("inf"), 50)
    assert found.why
    assert len(found.trials) == 1, "16 bits cost more than 8, so nothing else is tried"
    assert (
        found.why == "nothing is within the budget; the nearest has an SQNR of 20 dB and takes 100 of --max-cycles 50"
    )
    assert "the best that is proven has an SQNR of 20 dB, with no other level tried" in stairs(35, levels=()).why


def test_spots_are_read_through_what_only_moves_values():
    bench, _ = searching("attention", Goal("SQNR", 0.0), vgf())
    quantised = bench.quantised(Choice())
    spots = spots_of(quantised.module, quantised.reference)
    assert [spot.name for spot in reading(spots["linear_2"], spots)] == ["linear_2", "matmul"]
    assert spots["softmax"].units
    assert len(_union([reading(spots["softmax"], spots)] * 2)) == 2
