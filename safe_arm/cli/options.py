"""The arguments and options of every command that lowers a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from safe_arm.cli.request import Request
from safe_arm.cli.targets import DEFAULT_PROFILE, POLICIES, PROFILE_NAMES, TARGETS, accept, profile_for
from safe_arm.report.formats import FORMATS

FILE = click.Path(path_type=Path)

MODEL = click.argument("model", type=FILE, metavar="MODEL.pt2")
VERBOSE = click.option(
    "-v", "--verbose", is_flag=True, help="Show what the libraries print, and the traceback of a failure."
)
_QUANTISED_AND_LOWERED = (
    click.option("--target", required=True, metavar="TARGET", help=f"What to compile for: {', '.join(TARGETS)}."),
    click.option(
        "--profile",
        metavar="SPEC",
        help=f"TOSA specification, for vgf and tosa: {', '.join(PROFILE_NAMES)}, or one of them with extensions such "
        f"as +int16. Default {DEFAULT_PROFILE}. A profile without INT exports the model in float and needs no "
        "calibration. An Ethos-U target has its own profile.",
    ),
    click.option(
        "--non-fuseable",
        default=POLICIES[0],
        show_default=True,
        metavar="|".join(POLICIES),
        help="What to do with a convolution or linear whose activation is not implied by the quantisation of its "
        "output (a relu before a cat, for one). reject: keep both out of the delegate; they run on the CPU. propagate: "
        "delegate both, the activation kept as a clamp of its own.",
    ),
    click.option(
        "--calibrate",
        type=FILE,
        metavar="DATA.npz",
        help="Calibration data, needed to quantise; safe-arm export --help has the format.",
    ),
    click.option(
        "--verify/--no-verify",
        default=True,
        show_default=True,
        help="Run the delegates in the TOSA reference model; what differs there from the quantised graph, in codes, is "
        "kept off the accelerator.",
    ),
    click.option(
        "--report",
        "reports",
        type=FILE,
        multiple=True,
        metavar="FILE",
        help="Write there what became of every operator, and why; may be given again. The name's ending says as what: "
        f"{', '.join(f'{suffix} {what}' for suffix, what in FORMATS.items())}.",
    ),
)


def lowering_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say how a model is quantised, lowered and verified."""
    for option in reversed(_QUANTISED_AND_LOWERED):
        command = option(command)
    return command


def request_of(
    model: Path,
    target: str,
    profile: str | None,
    non_fuseable: str,
    calibrate: Path | None,
    verify: bool,
    reports: tuple[Path, ...],
    **more: Any,
) -> Request:
    """Return the request that a command's options make.

    Args:
        more: fields of ``Request`` that only this command knows.

    Raises:
        UsageError: an unknown target, profile or policy, or a profile the target does not have.
    """
    accept("target", target, TARGETS)
    accept("--non-fuseable", non_fuseable, POLICIES)
    return Request(
        model, target, profile_for(target, profile), non_fuseable, calibrate, verify=verify, reports=reports, **more
    )
