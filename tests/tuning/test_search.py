"""The search on nets with a planted weak spot: it finds the spot, and nothing cheaper would do."""

from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.vgf import VgfCompileSpec
from planted_spots import NETS

from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer, SafeVgfQuantizer, UsageError
from safe_arm.quantizer import float_run
from safe_arm.quantizer.fidelity import compared
from safe_arm.tuning import search as search_module
from safe_arm.tuning.metrics import Goal
from safe_arm.tuning.quantisation_choice import Choice
from safe_arm.tuning.search import Search, _union
from safe_arm.tuning.spots import Spot, reading, spots_of
from safe_arm.tuning.trial import Budget, Trial, TrialLog
from safe_arm.tuning.workbench import Workbench


def vgf(profile="TOSA-1.0+INT+FP+int16"):
    spec = VgfCompileSpec(profile)
    return lambda: SafeVgfQuantizer(spec), lambda: SafeArmPartitioner(spec, non_fuseable="propagate")


def ethos_u():
    spec = EthosUCompileSpec("ethos-u85-256")
    return lambda: SafeEthosUQuantizer(spec), lambda: SafeArmPartitioner(spec, non_fuseable="propagate")


def searching(name, goal, makers, start=None, log=None, **options):
    net, samples = NETS[name]()
    program = torch.export.export(net, samples[0])
    quantizer, partitioner = makers
    bench = Workbench(program, samples, quantizer, partitioner, goal, log)
    return bench, Search(bench, start or Choice(), **options)


def cheapest_of_all_subsets(search, found, at_least):
    """The least cost of all subsets of the six worst spots in 16 bits that reach a target.

    A subset of which a part is enough costs more than that part and is not lowered.
    """
    bench, start = search._bench, replace(found.best.choice, operators={})
    spots = [spot for spot in search._worst(start, "int16") if not spot.moves and spot.operators]
    enough = []
    for count in range(len(spots) + 1):
        for chosen in map(frozenset, combinations(spots, count)):
            choice = start.with_levels([name for spot in chosen for name in spot.operators], "int16")
            if not any(part < chosen for part, _ in enough) and bench.probe(choice) >= at_least:
                enough.append((chosen, choice))
    trials = [bench.trial(choice) for _, choice in enough]
    return min(trial.cost for trial in trials if trial.proven)


DEPTHWISE = {"conv2d_1": "int16", "tanh": "int16"}


def test_the_depthwise_layer_with_one_huge_channel_is_found():
    _, search = searching("depthwise", Goal("SQNR", 30.0), vgf(), float_on_cpu=False)
    found = search.run()
    assert found.reached
    assert found.best.proven
    assert found.best.value >= 30
    assert found.best.choice.operators == DEPTHWISE


@pytest.mark.parametrize(
    ("name", "at_least", "spot"), [("depthwise", 30.0, "conv2d_1"), ("attention", 34.8, "softmax")]
)
def test_no_subset_of_the_six_worst_spots_is_a_tenth_cheaper(name, at_least, spot):
    _, search = searching(name, Goal("SQNR", at_least), vgf(), float_on_cpu=False)
    found = search.run()
    assert found.reached
    assert found.best.proven
    assert found.best.value >= at_least
    assert found.best.choice.operators[spot] == "int16"
    cheapest = cheapest_of_all_subsets(search, found, at_least)
    assert found.best.cost <= 1.1 * cheapest


def test_vela_s_cycles_are_the_cost_for_an_ethos_u():
    _, search = searching("depthwise", Goal("SQNR", 30.0), ethos_u())
    found = search.run()
    assert found.reached
    assert found.best.unit == "cycles"
    assert found.trials[0].cost < found.best.cost
    assert found.best.choice.operators == DEPTHWISE


def test_a_good_net_stays_as_it_is():
    _, search = searching("good", Goal("SQNR", 30.0), vgf())
    found = search.run()
    assert found.reached
    assert [trial.choice for trial in found.trials] == [Choice()]
    assert found.best.choice == Choice()


def test_without_16_bits_it_stays_float():
    _, search = searching(
        "depthwise", Goal("SQNR", 30.0), vgf("TOSA-1.0+INT+FP"), levels=("float",), float_on_cpu=False
    )
    found = search.run()
    assert found.reached
    assert set(found.best.choice.operators.values()) == {"float"}
    assert "conv2d_1" in found.best.choice.operators


def test_a_target_that_cannot_be_reached_gives_the_best_and_why():
    _, search = searching("good", Goal("f", 2.0, lambda net: 1.0), vgf("TOSA-1.0+INT"), levels=())
    found = search.run()
    assert not found.reached
    assert found.best.proven
    assert "the best that is proven has f 1, with no other level tried" in found.why
    assert "+int16" in found.why
    assert "the float model itself has 1" in found.why


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


def test_what_was_tried_is_not_tried_again(tmp_path):
    path = tmp_path / "t.jsonl"
    _, search = searching("good", Goal("SQNR", 30.0), vgf(), log=TrialLog(path, "it"))
    first = search.run()
    bench, search = searching("good", Goal("SQNR", 30.0), vgf(), log=TrialLog(path, "it"))
    assert search.run().best == first.best
    assert bench.measured == [0, 0]


def test_an_interrupt_leaves_the_best_so_far(monkeypatch):
    bench, search = searching("depthwise", Goal("SQNR", 30.0), vgf())

    def interrupted(choice):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "probe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    assert search.best is not None
    assert search.best.proven
    assert search.best.choice == Choice()


def test_a_trial_that_is_not_proven_is_no_result(monkeypatch):
    """Without a budget nothing can be verified."""
    spec = VgfCompileSpec("TOSA-1.0+INT+FP")
    makers = lambda: SafeVgfQuantizer(spec), lambda: SafeArmPartitioner(spec, verify_budget=1)
    _, search = searching("good", Goal("SQNR", 30.0), makers)
    with pytest.raises(Exception, match="is not proven"):
        search.run()
    assert search.best is None


def test_a_partitioner_that_proves_nothing_is_refused():
    spec = VgfCompileSpec("TOSA-1.0+INT+FP")
    makers = lambda: SafeVgfQuantizer(spec), lambda: SafeArmPartitioner(spec, verify=False)
    _, search = searching("good", Goal("SQNR", 30.0), makers)
    with pytest.raises(UsageError, match="tune proves every trial"):
        search.run()


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
    def stairs(at_least, cycles=None):
        spots = {name: Spot(name, (name,), (), False, "", cost, ()) for name, (_, cost) in Staircase.GAINS.items()}
        monkeypatch.setattr(search_module, "spots_of", lambda *graphs: spots)
        bench = Staircase(Goal("SQNR in dB", at_least, budget=Budget(cycles)))
        search = Search(bench, Choice(), ("int16",))
        monkeypatch.setattr(search, "_worst", lambda choice, level: list(spots.values()))
        return search.run()

    return stairs


def test_within_a_budget_the_most_accurate_is_found(stairs):
    found = stairs(float("inf"), 200)
    assert (found.reached, found.why) == (True, "")
    assert sorted(found.best.choice.operators) == ["a", "b"]


def test_a_target_is_reached_within_the_budget_as_cheaply_as_without(stairs):
    assert stairs(25, 200).best == stairs(25).best
    assert list(stairs(25).best.choice.operators) == ["a"]


def test_a_target_beyond_the_budget_names_what_it_would_cost(stairs):
    found = stairs(35, 200)
    assert not found.reached
    assert sorted(found.best.choice.operators) == ["a", "b"]
    assert "the best that is proven has SQNR in dB 31, with int16 tried; beyond the budget, 10," in found.why


def test_where_nothing_is_within_the_budget_the_nearest_is_named(stairs):
    found = stairs(float("inf"), 50)
    assert not found.reached
    assert len(found.trials) == 1, "16 bits cost more than 8, so nothing else is tried"
    assert found.why == "nothing is within the budget; the nearest has SQNR in dB 20 and takes 100 of --max-cycles 50"


def test_spots_are_read_through_what_only_moves_values():
    bench, _ = searching("attention", Goal("SQNR", 0.0), vgf())
    quantised = bench.quantised(Choice())
    spots = spots_of(quantised.module, quantised.reference)
    assert [spot.name for spot in reading(spots["linear_2"], spots)] == ["linear_2", "matmul"]
    assert spots["softmax"].units
    assert len(_union([reading(spots["softmax"], spots)] * 2)) == 2
