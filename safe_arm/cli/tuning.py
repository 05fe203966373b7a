"""What ``safe-arm tune`` does with torch: the search, and what it leaves."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import cast

from executorch.backends.arm.quantizer import TOSAQuantizer
from torch.export import ExportedProgram

from safe_arm.cli.output_file import write_output
from safe_arm.cli.pipeline import compile_spec
from safe_arm.cli.progress import Steps
from safe_arm.cli.quantising import QUANTIZERS, Samples
from safe_arm.cli.request import Request
from safe_arm.cli.tune_command import Target
from safe_arm.core.errors import UsageError
from safe_arm.core.versions import versions
from safe_arm.partitioner.checks import Policy
from safe_arm.safe_partitioner import SafeArmPartitioner
from safe_arm.tuning.front_page import front_page, front_text
from safe_arm.tuning.metrics import Goal, load_function
from safe_arm.tuning.quantisation_choice import LEVELS, Choice
from safe_arm.tuning.recipe_file import Recipe
from safe_arm.tuning.search import Found, Search
from safe_arm.tuning.trial import Trial, TrialLog
from safe_arm.tuning.workbench import Workbench


def tuned(
    request: Request,
    target: Target,
    program: ExportedProgram,
    samples: Samples | None,
    steps: Steps,
) -> tuple[str, str]:
    """Search, and write the recipe and the page.

    Returns:
        The front as text, and why the target is not reached; empty if it is.

    Raises:
        UsageError: a metric that cannot be used.
    """
    if samples is None:
        raise UsageError(
            "tune wants the float program, and this one is quantised already"
        )
    goal = _goal(target)
    bench = _workbench(request, target, goal, program, samples)
    asked = request.quantisation
    levels = [
        level
        for level in LEVELS
        if level != "int16"
        or ("int16" in request.profile.parts and asked.activations < 16)
    ]
    with steps.step(f"tune for {request.target}"):
        start = Choice(asked.activations, not asked.per_tensor)
        search = Search(
            bench,
            start,
            levels,
            "FP" not in request.profile.parts,
            steps.note,
            steps.count,
        )
        if known := len(bench.log.trials):
            steps.note(
                f"Note: {known} trials of {target.log} are taken as they are; remove it to try them again"
            )
        try:
            found = search.run()
        except KeyboardInterrupt:
            if search.best is not None:
                _recipe(request, goal, bench, search.best, {}).save(target.output)
            raise
    modules = {
        name: spot.module
        for spot in found.spots.values()
        for name in spot.operators
        if spot.module
    }
    recipe = _recipe(request, goal, bench, found.best, modules)
    with steps.step(f"write {target.output}"):
        write_output(
            target.output,
            lambda file: file.write(
                (json.dumps(recipe.to_dict(), indent=1) + "\n").encode()
            ),
        )
    if target.front is not None:
        with steps.step(f"write {target.front}"):
            write_output(
                target.front,
                front_page(
                    found, goal.name, goal.at_least, request.model.stem
                ).encode(),
            )
    return _text(found, goal, target), found.why


def _text(found: Found, goal: Goal, target: Target) -> str:
    trials = f"{len(found.trials)} trial{'s' if len(found.trials) > 1 else ''}"
    best = found.best
    ended = (
        f"{goal.name} {best.value:.4g}, {best.cost:,.0f} {best.unit}, proven; {trials}"
    )
    return f"{front_text(found, goal.name)}\n{target.output}: {ended}"


def _goal(target: Target) -> Goal:
    if target.metric is None:
        return Goal("SQNR in dB", cast(float, target.min_sqnr))
    return Goal(
        target.metric.rpartition(":")[2],
        cast(float, target.at_least),
        load_function(target.metric),
    )


def _workbench(
    request: Request,
    target: Target,
    goal: Goal,
    program: ExportedProgram,
    samples: Samples,
) -> Workbench:
    def quantizer() -> TOSAQuantizer:
        spec = compile_spec(request)
        return QUANTIZERS[type(spec)](spec)

    make = partial(
        SafeArmPartitioner,
        non_fuseable=cast("Policy", request.policy),
        verify=True,
        verify_tolerance=request.tolerance,
    )
    log = TrialLog(target.log, _subject(request, target))
    return Workbench(
        program,
        list(samples),
        quantizer,
        lambda: make(compile_spec(request)),
        goal,
        log,
    )


def _subject(request: Request, target: Target) -> str:
    """Return what tells trials of one search from those of another: files, options, versions."""
    files = [
        request.model,
        request.quantisation.calibration,
        target.metric and Path(target.metric.rpartition(":")[0]),
    ]
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path]
    rest = (
        request.target,
        request.profile.text,
        request.policy,
        request.tolerance,
        asdict(request.vela),
        target.metric,
    )
    return hashlib.sha256(json.dumps([hashes, rest, versions()]).encode()).hexdigest()[
        :16
    ]


def _recipe(
    request: Request,
    goal: Goal,
    bench: Workbench,
    trial: Trial,
    modules: dict[str, str],
) -> Recipe:
    operators, sha256 = bench.model
    measured = {
        "metric": goal.name,
        "value": trial.value,
        "at_least": goal.at_least,
        "reached": trial.value >= goal.at_least,
        "sqnr_db": trial.sqnr_db,
        "cost": trial.cost,
        "cost_unit": trial.unit,
        "proven": True,
    }
    named = {
        name: module
        for name, module in modules.items()
        if name in trial.choice.operators
    }
    choice, target = trial.choice, request.target
    return Recipe(
        choice,
        operators,
        sha256,
        target,
        request.profile.text,
        named,
        measured,
        versions(),
    )
