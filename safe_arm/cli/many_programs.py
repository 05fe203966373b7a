"""One command on many programs, or for many targets: a job each, in processes here or on a cluster."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from safe_arm.cli.exit_status import FAILED, NOTHING_DELEGATED
from safe_arm.cli.matrix import (
    Combination,
    combinations,
    is_pattern,
    names_of,
    programs,
)
from safe_arm.cli.project_defaults import explicit, note_overridden, whence
from safe_arm.core.errors import UsageError

if TYPE_CHECKING:
    from safe_arm.cli.progress import Steps
    from safe_arm.jobs.job import Job, JobEnded
    from safe_arm.jobs.row import Row

FILE = click.Path(path_type=Path)
VARIED = ("target", "profile", "non_fuseable")
#: Options of the run as a whole; a job has none of them.
OF_THE_RUN = ("jobs", "scheduler", "memory", "results")
#: What each job is given in its own way, or not at all.
_OWN = frozenset(
    (
        *VARIED,
        *OF_THE_RUN,
        "model",
        "calibrate",
        "reports",
        "as_json",
        "quiet",
        "verbose",
        "output",
        "repro_dir",
        "front",
    )
)
#: Of no use to a program that is quantised already.
_QUANTISES = frozenset(("calibrate", "activations", "per_tensor", "keep_float"))
#: Of no use to a target that is no Ethos-U.
_VELAS = frozenset(("system_config", "memory_mode", "config"))
ROWS, INDEX = "rows.jsonl", "index.html"
DEFAULT_RESULTS = Path("safe-arm-check")

_OPTIONS = (
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help="Of several programs or targets: how many run at a time in processes here, as far as memory goes. "
        "Default 1.",
    ),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Run them on this Dask cluster instead, such as tcp://host:8786, whose workers share this directory.",
    ),
    click.option(
        "--memory",
        type=click.FloatRange(min=0, min_open=True),
        metavar="GB",
        help="What jobs that run here may need together. Default is what is free.",
    ),
)
RESULTS = click.option(
    "--results",
    type=FILE,
    metavar="DIR",
    help="Of several programs or targets: where the table goes as index.html, with a page for each, and as JSON lines; "
    f"an interrupted run goes on there. Default {DEFAULT_RESULTS}.",
)


@dataclass(frozen=True)
class Run:
    """What a command line asks for, of many programs.

    Attributes:
        ctx: the command's.
        jobs: in order.
        results: the directory of all they write.
    """

    ctx: click.Context
    jobs: tuple[Job, ...]
    results: Path


def or_many(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command of one program take several, and several targets, profiles and policies; it gets one of each."""

    @functools.wraps(command)
    def called(**params: Any) -> None:
        ctx = click.get_current_context()
        if _is_many(ctx):
            _run_many(ctx)
            return
        one = {name: value for name, value in params.items() if name not in OF_THE_RUN}
        for name in ("model", *VARIED):
            one[name] = next(iter(params[name]), None)
        command(**one)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called


def _is_many(ctx: click.Context) -> bool:
    """Whether there may be more than one job, or one of the options of such a run is on the command line."""
    params = ctx.params
    several = any(len(set(params[name])) > 1 for name in ("model", *VARIED))
    return (
        several
        or is_pattern(params["model"][0])
        or any(explicit(name) for name in OF_THE_RUN if params.get(name))
    )


def _run_many(ctx: click.Context) -> None:
    """Do what was asked for, print the table, and end with the status of it all.

    Raises:
        UsageError: something that no job could do; what one alone cannot do costs its own row.
        KeyboardInterrupt: it was interrupted; the text says how to go on.
    """
    _check_options(ctx)
    run = _planned(ctx)
    if not ctx.params["quiet"]:
        note_overridden()
    rows = _rows(run)
    if ctx.params.get("as_json"):
        from safe_arm.jobs.row import line_of

        for row in rows:
            click.echo(line_of(row))
    elif not ctx.params["quiet"]:
        from safe_arm.jobs.rows_table import print_rows

        print_rows(rows, sys.stdout)
        click.echo(f"pages: {run.results / INDEX}")
    statuses = {row.exit_status for row in rows}
    ctx.exit(FAILED if statuses - {0, NOTHING_DELEGATED} else max(statuses, default=0))


def _check_options(ctx: click.Context) -> None:
    params = ctx.params
    if params["verbose"]:
        raise UsageError(
            f"--verbose is for one program; the row of a failed one has its command{whence('verbose')}"
        )
    if params["reports"] and explicit("reports"):
        raise UsageError(
            "--report is for one program; of several, each has its page beside index.html; leave it out"
        )
    for name in ("against", "update", "junit", "operators", "front"):
        if params.get(name):
            raise UsageError(
                f"--{name} is for one program and target{whence(name)}; leave it out, or ask for it of each by itself"
            )
    for name in ("jobs", "memory"):
        if params["scheduler"] and params[name] and explicit(name):
            raise UsageError(
                f"--{name} is of processes here, and --scheduler runs them there; give one of them"
            )


def _planned(ctx: click.Context) -> Run:
    """Return the jobs of a command line, its options checked for each target and the results' directory there."""
    from safe_arm.cli.required_tools import check_tools

    params = ctx.params
    results = (
        params["output"] if "output" in params else params["results"] or DEFAULT_RESULTS
    )
    paths = programs(params["model"])
    asked = combinations(*(params[name] for name in VARIED))
    for each in asked:
        _check_combination(ctx, paths[0], each)
    for target in () if params["scheduler"] else dict.fromkeys(params["target"]):
        check_tools(target, verify=params["verify"])
    _make(results, {"export": ".pte", "tune": ".json"}.get(ctx.command.name or ""))
    jobs = tuple(
        _job(ctx, path, program, each, asked, results)
        for path, program in names_of(paths).items()
        for each in asked
    )
    return Run(ctx, jobs, results)


def _job(
    ctx: click.Context,
    path: Path,
    program: str,
    each: Combination,
    asked: Sequence[Combination],
    results: Path,
) -> Job:
    from safe_arm.cli.program_memory import expected_memory
    from safe_arm.jobs.job import Job

    folder, name = Path.cwd(), "-".join((program, *_varying(each, asked).values()))
    arguments, data, files = _arguments(ctx, path, each, results / name)
    metric = ctx.params.get("metric")
    read = (
        path,
        data,
        ctx.params["config"],
        ctx.params.get("recipe"),
        metric and metric.rpartition(":")[0],
    )
    inputs = tuple(folder / file for file in read if file)
    return Job(
        name,
        tuple(arguments),
        folder,
        folder / results / f"{name}.json",
        ctx.command.name == "check",
        tuple(folder / file for file in files),
        inputs,
        expected_memory(path, data),
        {"program": program, **_varying(each, asked, always=True)},
    )


def _varying(
    each: Combination, asked: Sequence[Combination], always: bool = False
) -> dict[str, str]:
    """Return by column what tells a combination from the others; the target anyway, others too if they are given."""
    found = {"target": each.target}
    if len({other.profile for other in asked if other.target == each.target}) > 1 or (
        always and each.profile
    ):
        found["profile"] = each.profile or ""
    if len({other.policy for other in asked}) > 1:
        found["policy"] = each.policy
    return found


def _check_combination(ctx: click.Context, model: Path, each: Combination) -> None:
    """Check what can be checked of the options without a program: that they go together for this target."""
    from inspect import signature

    from safe_arm.cli.options import request_of
    from safe_arm.cli.request import Request

    taken = {
        *signature(request_of).parameters,
        *(field.name for field in fields(Request)),
    } - {"model", "output"}
    given = {name: value for name, value in ctx.params.items() if name in taken}
    given |= {
        "target": each.target,
        "profile": each.profile,
        "non_fuseable": each.policy,
        "quiet": True,
    }
    if not each.target.startswith("ethos-u"):
        given |= dict.fromkeys(_VELAS)
    request_of(model, random_allowed=ctx.command.name == "check", **given)


def _make(results: Path, suffix: str | None) -> None:
    option = "-o" if suffix else "--results"
    if suffix and results.suffix == suffix and not results.is_dir():
        raise UsageError(
            f"-o {str(results)!r} is the name of a file; of several programs or targets, give a directory"
        )
    try:
        results.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{option} {str(results)!r} is no directory that can be made ({error.strerror}); of several programs or "
            f"targets, it is a directory: give another {option}"
        ) from error


def _arguments(
    ctx: click.Context, path: Path, each: Combination, stem: Path
) -> tuple[list[str], Path | None, tuple[Path, ...]]:
    """Return the command line of a job, the calibration data it reads from a file, and the files it writes."""
    params, command = ctx.params, ctx.command.name or ""
    quantised = _is_quantised(path)
    data = None if quantised else params["calibrate"]
    if data is not None and data.is_dir():
        data = data / f"{path.stem}.npz"
    page, json_file, pte = (
        Path(f"{stem}{suffix}") for suffix in (".html", ".json", ".pte")
    )
    own = ["--isolated", f"--target={each.target}", f"--non-fuseable={each.policy}"]
    own += [f"--front={page}"] if command == "tune" else [f"--report={page}"]
    own += [f"--profile={each.profile}"] if each.profile else []
    own += [f"--calibrate={data}"] if data else []
    written = {
        "export": [f"--output={pte}", f"--report={json_file}"],
        "tune": [f"--output={json_file}"],
    }
    own += written.get(command, ["--json"])
    own += [f"--repro-dir={stem}-repros"] if params.get("repro_dir") else []
    left_out = _OWN | (_QUANTISES if quantised else set())
    left_out |= set() if each.target.startswith("ethos-u") else _VELAS
    shared = [
        text
        for option in ctx.command.params
        if option.name not in left_out
        for text in _spelt(ctx, option)
    ]
    from_file = data if data is not None and str(data) != "random" else None
    return (
        [command, str(path), *own, *shared],
        from_file,
        (page, pte) if command == "export" else (page,),
    )


def _is_quantised(path: Path) -> bool:
    from zipfile import BadZipFile

    from safe_arm.cli.model_file import quantising_operator

    try:
        return bool(quantising_operator(path))
    except (OSError, KeyError, BadZipFile):  # its own job says so
        return False


def _spelt(ctx: click.Context, option: click.Parameter) -> Iterator[str]:
    """Yield an option as each job is given it, nothing if neither the command line nor the project has it."""
    given = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
    name = option.name or ""
    if (
        not isinstance(option, click.Option)
        or name not in ctx.params
        or ctx.get_parameter_source(name) not in given
    ):
        return
    value, long = (
        ctx.params[name],
        next(each for each in option.opts if each.startswith("--")),
    )
    if option.is_flag:
        yield from (long,) if value else option.secondary_opts[:1]
        return
    yield from (f"{long}={each}" for each in (value if option.multiple else (value,)))


def _rows(run: Run) -> list[Row]:
    """Run what has no row yet, write a line and the index anew after each, and return all rows in order."""
    from safe_arm.cli.progress import Steps
    from safe_arm.core.whole_file import replace_file
    from safe_arm.jobs.row import line_of, read_rows, row_of, still_holds, write_rows
    from safe_arm.jobs.rows_page import index

    path, steps = run.results / ROWS, Steps(sys.stderr, quiet=run.ctx.params["quiet"])
    before = read_rows(path)
    rows = {
        job.name: before[job.name]
        for job in run.jobs
        if job.name in before and still_holds(before[job.name], job)
    }
    write_rows(path, rows.values())
    left = [job for job in run.jobs if job.name not in rows]
    if rows:
        steps.note(f"{len(rows)} of {len(run.jobs)} are in {path} already")
    title = f"safe-arm {run.ctx.command.name}"

    def ordered() -> list[Row]:
        return [rows[job.name] for job in run.jobs if job.name in rows]

    try:
        with (
            open(path, "a", encoding="utf-8") as lines,
            steps.step(_counted(run, left), len(left)) as advance,
            closing(_ended(run, left, steps)) as ending,
        ):
            for job, ended in ending:
                row = rows[job.name] = row_of(job, ended, _figures(job, ended))
                lines.write(f"{line_of(row)}\n")
                lines.flush()
                replace_file(
                    run.results / INDEX, index(ordered(), len(run.jobs), title).encode()
                )
                advance()
                _tell(steps, row)
    except KeyboardInterrupt:
        text = f"{len(rows)} of {len(run.jobs)} rows are in {path}; the same command goes on there"
        raise KeyboardInterrupt(text) from None
    replace_file(run.results / INDEX, index(ordered(), len(run.jobs), title).encode())
    return ordered()


def _counted(run: Run, left: Sequence[Job]) -> str:
    where = run.ctx.params["scheduler"] or f"{run.ctx.params['jobs'] or 1} at a time"
    return f"{run.ctx.command.name} {len(left)} of {len(run.jobs)}, {where}"


def _tell(steps: Steps, row: Row) -> None:
    from safe_arm.jobs.rows_table import outcome

    steps.note(f"{row.name}: {outcome(row)} ({row.seconds:.1f} s)")


def _ended(
    run: Run, left: Sequence[Job], steps: Steps
) -> Generator[tuple[Job, JobEnded], None, None]:
    """Yield jobs as they end, here or there."""
    params = run.ctx.params
    if not left:
        return
    if not params["scheduler"]:
        from safe_arm.jobs.local_jobs import available_memory, run_here

        memory = int(params["memory"] * 1e9) if params["memory"] else available_memory()
        yield from run_here(left, params["jobs"] or 1, memory)
        return
    from safe_arm.jobs import cluster

    targets = tuple(dict.fromkeys(params["target"]))
    with cluster.connected(params["scheduler"]) as client:
        cluster.check_workers(
            client,
            run.results.absolute(),
            functools.partial(_missing, targets, params["verify"]),
        )
        if not cluster.declared_memory(client):
            text = "Note: no worker declares memory (dask worker --resources memory=16e9): as many jobs as threads each"
            steps.note(text)
        yield from cluster.run_there(left, client)


def _missing(targets: tuple[str, ...], verify: bool) -> str:
    """Return what a machine lacks for the targets, empty for nothing."""
    from safe_arm.cli.required_tools import check_tools

    try:
        for target in targets:
            check_tools(target, verify=verify)
    except UsageError as error:
        return str(error)
    return ""


def _figures(job: Job, ended: JobEnded) -> dict[str, int | float | str | None]:
    """Return what a job came to: under the policy it was asked for."""
    if not ended.result:
        return {}
    document: dict[str, Any] = json.loads(job.result.read_text(encoding="utf-8"))
    if "measured" in document:  # A recipe.
        figures: dict[str, int | float | str | None] = document["measured"]
        return figures
    if "comparison" in document:
        compared: dict[str, int | float | str | None] = document["comparison"][
            document["non_fuseable"]
        ]
        return compared
    from safe_arm.cli.comparison import compared_of

    return dict(compared_of(document))
