"""The part of ``safe-arm tune`` that needs torch: the search, and the files that it writes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from safe_arm.cli.output_file import write_output
from safe_arm.cli.progress import Steps
from safe_arm.cli.quantising import Loaded, compile_spec, quantizer_for
from safe_arm.cli.request import Request, Target
from safe_arm.core.errors import UsageError
from safe_arm.core.toolchain import VELA_PACKAGE
from safe_arm.core.versions import versions
from safe_arm.partitioner.checks import Policy
from safe_arm.report.numbers import counted
from safe_arm.safe_partitioner import SafeArmPartitioner
from safe_arm.tuning.costs import CYCLES
from safe_arm.tuning.front_page import front_page, front_text
from safe_arm.tuning.metrics import Goal, load_function
from safe_arm.tuning.quantisation_choice import LEVELS, Choice, Level
from safe_arm.tuning.recipe_file import Recipe
from safe_arm.tuning.search import Found, Search
from safe_arm.tuning.trial import Budget, Trial, TrialLog, cliff
from safe_arm.tuning.workbench import Workbench


def tuned(source: Loaded, target: Target, steps: Steps) -> tuple[str, str]:
    """Search, and write the recipe and the page.

    Returns:
        The front as text, and why the target is not reached; empty if it is.

    Raises:
        UsageError: a metric that cannot be used.
    """
    request = source.request
    bench = _workbench(source, target)
    asked = request.quantisation
    parts = request.profile.parts
    levels: Sequence[Level] = LEVELS
    if "int16" not in parts or asked.activations == 16:
        levels = LEVELS[1:]
    start = Choice(asked.activations, not asked.per_tensor)  # what export would do
    on_cpu = "FP" not in parts
    with steps.step(f"tune for {request.target}"):
        search = Search(bench, start, levels, on_cpu, steps.note, steps.count)
        for note in log_notes(bench.log, target.log):
            steps.note(note)
        try:
            found = search.run()
            warning = _cliff(found)
            if warning:
                steps.warn(warning)
        except KeyboardInterrupt:
            if search.best is not None:
                _recipe(request, bench, search.best, {}).save(target.output)
            raise
    modules = {}
    for spot in found.spots.values():
        if spot.module:
            modules.update(dict.fromkeys(spot.operators, spot.module))
    recipe = _recipe(request, bench, found.best, modules)
    with steps.step(f"write {target.output}"):
        write_output(target.output, recipe.rendered())
    if target.front is not None:
        with steps.step(f"write {target.front}"):
            page = front_page(found, request.model.stem)
            write_output(target.front, page.encode())
    return _text(found, target.output, bench.log.estimator), found.why


def log_notes(log: TrialLog, path: Path) -> Iterator[str]:
    """Yield the notes about trials that an earlier run left: those that are used, and those of another estimator."""
    if log.trials:
        trials = counted(len(log.trials), "trial")
        yield f"Note: uses {trials} of an earlier run, from {path}; remove the file to start again"
    for estimator, number in log.others.items():
        trials = counted(number, "trial")
        yield (
            f"Note: repeats {trials} of {path}, whose costs are by another estimator, {estimator}, not {log.estimator}"
        )


def _text(found: Found, output: Path, estimator: str) -> str:
    trials = counted(len(found.trials), "trial")
    best = found.best
    goal = found.goal
    cost = f"{best.cost:,.0f} {best.unit}"
    if estimator:
        cost += f" by {estimator}"
    value = f"{goal.name} {best.value:.4g}"
    if goal.function is None and best.worst_sample_db is not None:
        value += f", worst sample {best.worst_sample_db:.4g}"
    line = f"{value}, {cost}, proven; {trials}"
    lines = [front_text(found), f"{output}: {line}"]
    if best.would_keep:
        islands = counted(best.would_keep, "refused island")
        lines.append(
            f"recommended: tune with --non-fuseable best, which would delegate {islands}"
        )
    return "\n".join(lines)


def _cliff(found: Found) -> str:
    """Return a warning if one step up to the recipe costs many times as much for few decibels; empty if none does."""
    goal = found.goal
    steep = cliff(found.trials, found.best)
    if steep is None:
        return ""
    before, after = steep
    times = after.cost / max(before.cost, 1)
    options = f"--min-sqnr {math.floor(before.value * 10) / 10:g}"
    if goal.function is not None:
        options = f"--at-least {before.value:g}"
    if before.unit == CYCLES:
        options += f" or --max-cycles {before.cost:.0f}"
    return (
        f"{goal.name} {after.value:.4g} costs {after.cost:,.0f} {after.unit}, {times:.0f} times those of "
        f"{before.value:.4g} ({before.cost:,.0f}); {options} stays below that step"
    )


def _goal(request: Request, target: Target) -> Goal:
    name = "SQNR in dB"
    at_least = request.min_sqnr
    function = None
    if target.metric is not None:
        name = target.metric.rpartition(":")[2]
        at_least = target.at_least
        function = load_function(target.metric)
    if at_least is None:
        at_least = math.inf
    budget = Budget(request.limits.cycles, request.limits.sram)
    return Goal(name, at_least, function, budget)


def _workbench(source: Loaded, target: Target) -> Workbench:
    request = source.request
    goal = _goal(request, target)
    if source.samples is None:
        raise UsageError(
            "tune needs the float program, and this one is quantised already"
        )

    def partitioner() -> SafeArmPartitioner:
        return SafeArmPartitioner(
            compile_spec(request),
            non_fuseable=cast("Policy", request.policy),
            verify=True,
            verify_tolerance=request.tolerance,
            min_macs=request.min_macs,
        )

    log = TrialLog(target.log, _subject(request, target), estimator_of(request))
    quantizer = partial(quantizer_for, request)
    return Workbench(source.program, source.samples, quantizer, partitioner, goal, log)


def estimator_of(request: Request) -> str:
    """Return the name and version of the tool that estimates costs; empty if costs are counted."""
    if not request.target.startswith("ethos-u"):
        return ""
    return f"Vela {versions()[VELA_PACKAGE]}"


def _subject(request: Request, target: Target) -> str:
    """Return a digest of files, options and versions, which tells the trials of one search from those of another.

    Vela's version is not in it: a log names the estimator of each trial.
    """
    files = [request.model]
    if request.quantisation.calibration is not None:
        files.append(request.quantisation.calibration)
    if target.metric is not None:
        files.append(Path(target.metric.rpartition(":")[0]))
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    others = versions()
    del others[VELA_PACKAGE]
    rest = (
        request.target,
        request.profile,
        request.policy,
        request.tolerance,
        request.min_macs,
        request.vela,
        target.metric,
    )
    text = repr((hashes, others, rest))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _recipe(
    request: Request, bench: Workbench, trial: Trial, modules: dict[str, str]
) -> Recipe:
    operators, sha256 = bench.model
    goal = bench.goal
    at_least = None if math.isinf(goal.at_least) else goal.at_least
    reached = at_least is None or trial.value >= at_least
    measured = {
        "metric": goal.name,
        "at_least": at_least,
        "reached": reached and goal.budget.fits(trial),
        "cost_unit": trial.unit,
    }
    for name in ("value", "sqnr_db", "worst_sample_db", "cost", "sram", "proven"):
        measured[name] = getattr(trial, name)
    choice = trial.choice
    named = {name: modules[name] for name in modules if name in choice.operators}
    return Recipe(
        choice,
        operators,
        sha256,
        request.target,
        request.profile.text,
        named,
        measured,
        versions(),
    )
