"""One command for many programs or targets: one job for each combination, in a process of its own."""

from __future__ import annotations

import functools
import glob
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from safe_arm.cli.exit_status import FAILED, NOTHING_DELEGATED
from safe_arm.cli.options import FILE, Command, request_of
from safe_arm.cli.project_defaults import explicit, note_overridden, spelled, whence
from safe_arm.cli.request import HOW_TO_QUANTISE, VELAS
from safe_arm.core.errors import UsageError

if TYPE_CHECKING:
    from safe_arm.jobs.row import Job, JobEnded, Row

VARIED = ("target", "profile", "non_fuseable")
#: The options of the run as a whole; no job has them.
OF_THE_RUN = ("jobs", "results")
#: The options of no use to a program that is quantised already.
QUANTISES = ("calibrate", *HOW_TO_QUANTISE)
_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
ROWS = "rows.jsonl"
INDEX = "index.html"
DEFAULT_RESULTS = Path("safe-arm-check")

JOBS = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Number of programs or targets to run in parallel, each in a process. Default 1.",
)
RESULTS = click.option(
    "--results",
    type=FILE,
    default=DEFAULT_RESULTS,
    metavar="DIR",
    help="Directory for the results of several programs or targets: a table (index.html), a page for each, and JSON "
    f"lines. An interrupted run continues there. Default {DEFAULT_RESULTS}.",
)


def or_many(command: Command) -> Command:
    """Let a command of one program take several, and several targets, profiles and policies; it gets one of each."""

    @functools.wraps(command)
    def called(**params: Any) -> None:
        ctx = click.get_current_context()
        model, *_ = ctx.params["model"]
        is_many = any(map(explicit, OF_THE_RUN)) or is_pattern(model)
        for name in ("model", *VARIED):
            values = ctx.params[name]
            is_many |= len(set(values)) > 1
            params[name] = values[0] if values else None
        if is_many:
            _run_many(ctx)
            return
        for name in OF_THE_RUN:
            params.pop(name, None)
        command(**params)

    return JOBS(called)


def _run_many(ctx: click.Context) -> None:
    """Do what was asked for, print the table, and end with the status of it all.

    Raises:
        UsageError: no job could do what was asked for; what one alone cannot do costs its own row.
        KeyboardInterrupt: it was interrupted; the text says how to go on.
    """
    from safe_arm.jobs.row import line_of
    from safe_arm.jobs.rows_table import print_rows

    params = ctx.params
    _check_options(params)
    results = params.get("results") or params["output"]
    jobs = _jobs(ctx, results)
    if not params["quiet"]:
        note_overridden()
    rows = _rows(ctx, jobs, results)
    if params.get("as_json"):
        for row in rows:
            click.echo(line_of(row))
    elif not params["quiet"]:
        print_rows(rows, sys.stdout)
        click.echo(f"pages: {results / INDEX}")
    statuses = {row.exit_status for row in rows}
    ctx.exit(FAILED if statuses - {0, NOTHING_DELEGATED} else max(statuses))


def _check_options(params: Mapping[str, Any]) -> None:
    if params["verbose"]:
        raise UsageError(
            f"--verbose is for one program; the row of a failed one has the command to repeat it{whence('verbose')}"
        )
    if params["reports"] and explicit("reports"):
        raise UsageError(
            "--report is for one program; with several, each has its own page next to index.html; leave it out"
        )
    if params.get("update") and not params["against"]:
        raise UsageError(
            "--update writes the baselines of --against DIR; give that too"
        )
    for name in ("junit", "operators", "front"):
        if params.get(name):
            raise UsageError(
                f"--{name} is for one program and target{whence(name)}; leave it out, or run each program by itself"
            )


def _jobs(ctx: click.Context, results: Path) -> list[Job]:
    """Check the options for each target, make the results' directory, and return the jobs."""
    from safe_arm.cli.required_tools import check_tools

    params = ctx.params
    command = ctx.command.name
    paths = programs(params["model"])
    asked = combinations(params)
    for each in asked:
        options = {**params, **each, "model": paths[0], "quiet": True}
        request_of(options, random_allowed=command == "check")
        check_tools(each["target"], verify=params["verify"])
    if params.get("against"):
        _make(params["against"], "--against", ".json")
    suffix = {"export": ".pte", "tune": ".json"}.get(command or "")
    _make(results, "-o" if suffix else "--results", suffix)
    jobs = []
    for path, program in names_of(paths).items():
        unused = QUANTISES if _is_quantised(path) else ()
        for each in asked:
            labels = {"program": program, "target": each["target"]}
            if each["profile"] and len(set(params["profile"])) > 1:
                labels["profile"] = each["profile"]
            if len(set(params["non_fuseable"])) > 1:
                labels["policy"] = each["non_fuseable"]
            options = {**each, **dict.fromkeys(unused)}
            jobs.append(_job(ctx, path, options, labels, results))
    return jobs


def _make(folder: Path, option: str, suffix: str | None) -> None:
    """Make a directory for the files of all jobs, unless the name is that of one program's file."""
    if suffix and folder.suffix == suffix and not folder.is_dir():
        raise UsageError(
            f"{option} {str(folder)!r} is the name of a file; for several programs or targets, give a directory"
        )
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{option} {str(folder)!r} cannot be created as a directory ({error.strerror}); for several programs or "
            f"targets, it is a directory: give another {option}"
        ) from error


def _is_quantised(path: Path) -> bool:
    from zipfile import BadZipFile

    from safe_arm.cli.model_file import quantising_operator

    try:
        return bool(quantising_operator(path))
    except (OSError, KeyError, BadZipFile):  # its own job says so
        return False


def _job(
    ctx: click.Context,
    path: Path,
    options: dict[str, Any],
    labels: dict[str, str],
    results: Path,
) -> Job:
    """Return the job of one program.

    Args:
        ctx: the command's.
        path: the program.
        options: the values of the job's own options; it has no option whose value is None.
        labels: by column, the words that tell this job from the others.
        results: the directory of everything that jobs write.
    """
    from safe_arm.jobs.row import Job

    params = ctx.params
    command = ctx.command.name or ""
    name = "-".join(labels.values())
    result, page, program = (
        results / f"{name}{suffix}" for suffix in (".json", ".html", ".pte")
    )
    data = params["calibrate"]
    if data is not None and data.is_dir():
        data = data / f"{path.stem}.npz"
    files: dict[str, dict[str, Any]] = {
        "check": {"as_json": True, "reports": page},
        "export": {"output": program, "reports": (page, result)},
        "tune": {"output": result, "front": page, "reports": None},
    }
    options = {"calibrate": data, "quiet": None, **files[command], **options}
    if params.get("repro_dir"):
        options["repro_dir"] = results / f"{name}-repros"
    if params.get("against"):
        options["against"] = params["against"] / f"{name}.json"
    arguments = (command, str(path), "--isolated", *_spelled(ctx, options))
    metric = (params.get("metric") or "").rpartition(":")[0]
    inputs = [path, options["calibrate"], params["config"], params.get("recipe")]
    inputs.append(options.get("against"))
    return Job(
        name=name,
        arguments=arguments,
        result=result,
        on_stdout=command == "check",
        files=(page, program) if command == "export" else (page,),
        inputs=tuple(Path(each) for each in (*inputs, metric) if each),
        labels=labels,
    )


def _spelled(ctx: click.Context, options: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line with these options, and with the others that the user or the project gives."""
    words = []
    for option in ctx.command.params:
        name = option.name or ""
        if name in options:
            value = options[name]
        elif name in OF_THE_RUN or ctx.get_parameter_source(name) not in _GIVEN:
            continue
        else:
            value = ctx.params.get(name)  # which --isolated is not among
        if value is None or not isinstance(option, click.Option):
            continue
        words += spelled(option, value)
    return words


def _rows(ctx: click.Context, jobs: Sequence[Job], results: Path) -> list[Row]:
    """Run the jobs that have no row yet, write the rows and the index after each, and return all rows in order.

    Args:
        ctx: the command's; its object runs the command line of a job.
        jobs: all jobs.
        results: the directory of everything that is written.
    """
    from safe_arm.cli.progress import Steps
    from safe_arm.core.whole_file import replace_file
    from safe_arm.jobs.job_processes import run_jobs
    from safe_arm.jobs.row import read_rows, row_of, still_holds, write_rows
    from safe_arm.jobs.rows_table import index, outcome

    path = results / ROWS
    command = ctx.command.name
    steps = Steps(sys.stderr, quiet=ctx.params["quiet"])
    at_a_time = ctx.params["jobs"]
    before = read_rows(path)
    rows = {}
    waiting = []
    for job in jobs:
        row = before.get(job.name)
        if row is not None and still_holds(row, job):
            rows[job.name] = row
        else:
            waiting.append(job)
    if rows:
        steps.note(f"{len(rows)} of {len(jobs)} are in {path} already")

    def write() -> list[Row]:
        ordered = [rows[job.name] for job in jobs if job.name in rows]
        write_rows(path, ordered)
        page = index(ordered, len(jobs), f"safe-arm {command}")
        replace_file(results / INDEX, page.encode())
        return ordered

    written = write()
    text = f"{command} {len(waiting)} of {len(jobs)}, {at_a_time} at a time"
    ends = run_jobs(waiting, at_a_time, ctx.obj, "safe_arm.cli.pipeline")
    try:
        with steps.step(text, len(waiting)) as advance, closing(ends):
            for job, ended in ends:
                row = row_of(job, ended, _figures(job, ended))
                rows[job.name] = row
                written = write()
                advance()
                steps.note(f"{row.name}: {outcome(row)} ({row.seconds:.1f} s)")
    except KeyboardInterrupt:
        text = f"{len(rows)} of {len(jobs)} rows are in {path}; the same command goes on there"
        raise KeyboardInterrupt(text) from None
    return written


def _figures(job: Job, ended: JobEnded) -> dict[str, int | float | str | None]:
    """Return the figures of a result: of a recipe, of a comparison under the policy asked for, or of a report."""
    from safe_arm.core.totals import Totals

    if not ended.result:
        return {}
    document: dict[str, Any] = json.loads(job.result.read_text(encoding="utf-8"))
    if "measured" in document:
        return dict(document["measured"])
    policy = document.get("non_fuseable")
    if policy is None:
        totals = {each.name: document["totals"][each.name] for each in fields(Totals)}
        return {**totals, "sqnr_db": _sqnr(document)}
    figures = dict(document["comparison"][policy])
    figures["sqnr_db"] = _sqnr(document["reports"][policy])
    if "gate" in document:
        figures["worse"] = sum(each["worse"] for each in document["gate"])
        figures["not_compared"] = sum(
            bool(each["estimators"]) for each in document["gate"]
        )
    if "stock" in document:
        figures["stock"] = document["stock"]["verdict"]
    return figures


def _sqnr(report: Mapping[str, Any]) -> float | None:
    """Return the ratio of the output that is worst over all samples, in dB; None if none was compared."""
    ratios = []
    for comparison in report["float_comparisons"]:
        for output in comparison["outputs"]:
            if output["sqnr"] is not None:
                ratios.append(output["sqnr"])
    return min(ratios, default=None)


def combinations(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each combination of the targets, profiles and policies of a command, as options of a job.

    An Ethos-U has its own profile, and takes none of those given. Other targets take none of Vela's options.
    """
    unique: list[dict[str, Any]] = []
    for target, policy in product(params["target"], params["non_fuseable"]):
        is_ethos_u = target.startswith("ethos-u")
        for profile in (not is_ethos_u and params["profile"]) or (None,):
            options = {"target": target, "profile": profile, "non_fuseable": policy}
            if not is_ethos_u:
                options |= dict.fromkeys(VELAS)
            if options not in unique:
                unique.append(options)
    return unique


def programs(names: Sequence[Path]) -> tuple[Path, ...]:
    """Return the files that names and patterns stand for, each once; the files of a pattern are sorted.

    Raises:
        UsageError: no file matches a pattern.
    """
    unique: dict[Path, None] = {}
    for name in names:
        if not is_pattern(name):
            unique[name] = None
            continue
        matching = sorted(glob.glob(str(name), recursive=True))
        if not matching:
            raise UsageError(
                f"no file matches {str(name)!r}; give .pt2 files, or a pattern such as 'models/*.pt2'"
            )
        unique.update(dict.fromkeys(map(Path, matching)))
    return tuple(unique)


def is_pattern(path: Path) -> bool:
    """Return whether a name stands for the files that match it, and is not a file's own."""
    return glob.has_magic(str(path)) and not path.exists()


def names_of(paths: Sequence[Path]) -> dict[Path, str]:
    """Return a unique name for each path: its stem, with the directories before it if others share the stem."""
    names: dict[Path, str] = {}
    uses = Counter(path.stem for path in paths)
    for path in paths:
        name = path.stem
        if uses[name] > 1:
            name = "-".join((*path.absolute().parts[1:-1], name))
        if name in names.values():
            name = f"{name}-{len(names)}"
        names[path] = name
    return names
