"""``safe-arm tune`` and ``safe-arm export --recipe``, end to end."""

import json
from dataclasses import replace
from pathlib import Path

import faults
import numpy as np
import pytest
import torch
from command_line import invoke
from planted_spots import NETS
from schemas import check_document

from safe_arm.cli.request import Request, Target
from safe_arm.cli.targets import profile_for
from safe_arm.cli.tune_command import _unreached
from safe_arm.cli.tuning import _cliff, _text, log_notes
from safe_arm.footprint.limits import Limits
from safe_arm.tuning.applying import fingerprint
from safe_arm.tuning.metrics import Goal
from safe_arm.tuning.quantisation_choice import Choice
from safe_arm.tuning.recipe_file import SCHEMA_VERSION, Recipe
from safe_arm.tuning.search import Found
from safe_arm.tuning.trial import Trial, TrialLog
from safe_arm.tuning.workbench import Workbench

INT16 = "--profile=TOSA-1.0+INT+FP+int16"


@pytest.fixture(scope="module")
def models(tmp_path_factory, save):
    """By name, a planted net and data for it."""
    folder = tmp_path_factory.mktemp("planted")
    found = {}
    for name, make in NETS.items():
        net, samples = make()
        np.savez(folder / f"{name}.npz", x=np.stack([sample[0].numpy() for sample in samples]))
        found[name] = save(net, samples[0], folder / f"{name}.pt2"), folder / f"{name}.npz"
    return found


def run(command, model, *options, target="vgf", status=0):
    path, data = model
    return invoke(command, path, f"--target={target}", f"--calibrate={data}", *options, status=status)


def refused(*arguments, says, **more):
    """Run what ends with status 2 and one line that says so, behind the lines of the progress."""
    result = run(*arguments, status=2, **more)
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, result.stderr
    assert "Traceback" not in result.stderr
    assert says in errors[0]
    return errors[0]


def test_the_recipe_is_found_exported_and_drawn(models, tmp_path):
    recipe, page, output = tmp_path / "r.json", tmp_path / "f.html", tmp_path / "net.pte"
    result = run("tune", models["depthwise"], INT16, "--min-sqnr=30", "-o", recipe, "--front", page)
    content = json.loads(recipe.read_text())
    assert content["operators"] == {"conv2d_1": "int16", "asinh": "int16"}
    assert content["modules"] == {"conv2d_1": "depthwise"}
    assert content["measured"]["proven"]
    assert content["measured"]["value"] >= 30
    assert "int16: asinh, conv2d_1" in result.stdout
    assert "<svg" in page.read_text()
    assert "int16: asinh, conv2d_1" in page.read_text()
    # Over all samples it has 30 dB, which is what is tuned for; export and check look at the worst sample.
    run("export", models["depthwise"], INT16, "--recipe", recipe, "--min-sqnr=20", "-o", output)
    assert output.exists()
    run("check", models["depthwise"], INT16, "--min-sqnr=20", status=1)
    assert (
        "uses 2 trials of an earlier run"
        in run("tune", models["depthwise"], INT16, "--min-sqnr=30", "-o", recipe).stderr
    )
    assert json.loads(recipe.read_text()) == content


def test_trials_with_costs_by_another_estimator_are_named(tmp_path):
    path = tmp_path / "r.trials.jsonl"
    choices = Choice(), Choice(operators={"conv": "int16"})
    for vela, choice in (("5.1.0", choices[0]), ("5.1.0", choices[1]), ("5.2.0", choices[0])):
        TrialLog(path, "this", f"Vela {vela}").add(Trial(choice, 30.0, 30.0, 100.0, "cycles", True))
    assert list(log_notes(TrialLog(path, "this", "Vela 5.2.0"), path)) == [
        f"Note: uses 1 trial of an earlier run, from {path}; remove the file to start again",
        f"Note: repeats 2 trials of {path}, whose costs are by another estimator, Vela 5.1.0, not Vela 5.2.0",
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"min_sqnr": 30.0}, "the target is not reached: W; r.json has the best; lower the target, or train the model"),
        ({"min_sqnr": 30.0, "max_cycles": 9}, "lower the target, or raise the budget, or train the model with this"),
        ({"at_least": 0.5, "metric": "m.py:f", "max_sram": 9}, "lower the target, or raise the budget, or train"),
        ({"max_sram": 9}, "W; r.json has the best; raise the budget"),
    ],
)
def test_the_advice_is_about_the_options_that_were_given(options, says):
    limits = Limits(options.get("max_sram"), None, options.get("max_cycles"))
    profile = profile_for("tosa", None)
    request = Request(Path("net.pt2"), "tosa", profile, "reject", min_sqnr=options.get("min_sqnr"), limits=limits)
    message = _unreached(request, Target(options.get("metric"), options.get("at_least"), Path("r.json"), None), "W")
    assert says in message
    assert ("target" in message) == ("max_sram" not in options or "metric" in options)


def test_a_metric_that_is_not_deterministic(models, tmp_path):
    (tmp_path / "m.py").write_text("def f(net):\n    f.n = getattr(f, 'n', 0) + 1\n    return f.n\n")
    options = f"--metric={tmp_path}/m.py:f", "--at-least=1", "-o", tmp_path / "r.json"
    refused("tune", models["good"], *options, says="metric f is not deterministic: 1, then 2")
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "tune needs a target: give either --min-sqnr DB, or --metric"),
        (["--min-sqnr=3", "--metric=m.py:f", "--at-least=1"], "tune needs a target"),
        (["--metric=m.py:f"], "--metric and --at-least go together"),
        (["--min-sqnr=3", "--at-least=1"], "--metric and --at-least go together"),
        (["--max-cycles=9"], "--max-cycles: for an Ethos-U only, Vela does not compile for vgf"),
        (["--metric=m.py:f", "--max-sram=nine"], "--max-sram 'nine' is no amount of memory"),
        (["--min-sqnr=3", "--no-verify"], "--no-verify is of no use to tune"),
        (["--min-sqnr=3", "--keep-float=stem"], "--keep-float is of no use to tune"),
        (["--min-sqnr=3", "--profile=TOSA-1.0+FP"], "is a float profile"),
    ],
)
def test_what_cannot_be_tuned(models, tmp_path, options, says):
    refused("tune", models["good"], *options, "-o", tmp_path / "r.json", says=says)
    assert list(tmp_path.iterdir()) == []


def recipe_of(models, name, path):
    """A recipe written by hand for a net."""
    program = torch.export.load(models[name][0])
    operators, sha256 = fingerprint(program.module(check_guards=False))
    Recipe(Choice(operators={"conv2d_1": "float"}), operators, sha256, "vgf", "TOSA-1.0+INT+FP").save(path)
    return path


def test_a_recipe_for_another_model(models, tmp_path):
    recipe = recipe_of(models, "depthwise", tmp_path / "r.json")
    says = "the recipe is for another model: its model has 7 operators, this one 10"
    refused("export", models["attention"], "--recipe", recipe, "-o", tmp_path / "net.pte", says=says)
    assert not (tmp_path / "net.pte").exists()


def test_a_recipe_holds_for_other_weights(models, tmp_path):
    """The good net has the same operators as the one with the planted channel."""
    recipe = recipe_of(models, "depthwise", tmp_path / "r.json")
    run("export", models["good"], "--recipe", recipe, "-o", tmp_path / "net.pte", target="tosa")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--per-tensor"], "--recipe says how to quantise; leave out --per-tensor"),
        (["--activations=8", "--keep-float=stem"], "leave out --activations, --keep-float"),
        (["--profile=TOSA-1.0+FP"], "TOSA-1.0+FP is a float profile; leave it out"),
    ],
)
def test_what_cannot_stand_beside_a_recipe(models, tmp_path, options, says):
    recipe = recipe_of(models, "good", tmp_path / "r.json")
    refused("check", models["good"], "--recipe", recipe, *options, says=says)


def test_a_target_that_cannot_be_reached_leaves_the_best(models, tmp_path):
    (tmp_path / "m.py").write_text("def always(net):\n    return 1.0\n")
    options = "--profile=TOSA-1.0+INT", f"--metric={tmp_path}/m.py:always", "--at-least=2", "-o", tmp_path / "r.json"
    error = refused("tune", models["good"], *options, says="not reached: the best that is proven has always 1")
    assert "+int16" in error
    assert "the float model itself has 1" in error
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["measured"]["reached"] is False
    assert (content["operators"], content["schema_version"]) == ({}, SCHEMA_VERSION)
    check_document(content, "tuning/recipe")


def test_a_budget_is_kept_or_the_nearest_named(models, tmp_path):
    recipe, target = tmp_path / "r.json", "ethos-u85-256"
    kept = "--min-sqnr=20", "--max-cycles=1000000", "--max-sram=1M"
    run("tune", models["good"], *kept, "-o", recipe, target=target)
    measured = json.loads(recipe.read_text())["measured"]
    assert measured["reached"]
    assert 0 < measured["sram"] < 2**20
    says = f"takes {measured['cost']:,.0f} of --max-cycles 9"
    refused("tune", models["good"], "--max-cycles=9", "-o", recipe, target=target, says=says)
    again = json.loads(recipe.read_text())["measured"]
    assert (again["at_least"], again["reached"]) == (None, False)


def test_a_cliff_is_warned_about():
    def found(*points):
        trials = [Trial(Choice(), value, value, cost, "cycles", True) for value, cost in points]
        return Found(Goal("SQNR in dB", 35.0), tuple(trials), trials[-1], {})

    assert _cliff(found((21.2, 120_000), (33.8, 144_000), (35.2, 15_800_000))) == (
        "SQNR in dB 35.2 costs 15,800,000 cycles, 110 times those of 33.8 (144,000); --min-sqnr 33.8 or --max-cycles"
        " 144000 stays below that step"
    )
    assert _cliff(found((21.2, 120_000), (33.8, 144_000))) == ""


def test_an_interrupt_leaves_the_best_so_far(models, tmp_path, monkeypatch):
    monkeypatch.setattr(Workbench, "probe", faults.raising(KeyboardInterrupt))
    result = run("tune", models["depthwise"], "--min-sqnr=30", "-o", tmp_path / "r.json", status=130)
    assert "Interrupted; already written:" in result.stderr
    assert "r.json" in result.stderr
    assert json.loads((tmp_path / "r.json").read_text())["operators"] == {}


def test_another_policy_is_recommended_where_it_would_delegate_more():
    trial = Trial(Choice(), 40.0, 40.0, 1000, "cycles", True)
    for refused, recommended in ((0, []), (2, ["2 refused islands"])):
        best = replace(trial, would_keep=refused)
        found = Found(Goal("SQNR in dB", 30.0), (best,), best, {})
        lines = _text(found, Path("r.json"), "").splitlines()
        assert [line.rpartition("delegate ")[2] for line in lines if "--non-fuseable best" in line] == recommended
