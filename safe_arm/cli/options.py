"""The arguments and options of every command that lowers a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import click

from safe_arm.cli.option_types import Bytes, File, OneOf, Percent, Suggested, Varied
from safe_arm.cli.project_defaults import ISOLATED, note_overridden, whence
from safe_arm.cli.request import Quantisation, Request
from safe_arm.cli.targets import (
    DEFAULT_PROFILE,
    ETHOS_U_PROFILES,
    POLICIES,
    PROFILE_NAMES,
    TARGETS,
    Profile,
    profile_for,
)
from safe_arm.cli.vela_options import require_ethos_u, vela_of
from safe_arm.core.errors import UsageError
from safe_arm.footprint.limits import Limits
from safe_arm.report.formats import FORMATS

Command: TypeAlias = Callable[..., None]
FILE = File()
#: What ``check`` takes in place of a calibration file.
RANDOM = Path("random")

MODEL = click.argument("model", type=FILE, metavar="MODEL.pt2")
MODELS = click.argument(
    "model", type=FILE, nargs=-1, required=True, metavar="MODEL.pt2..."
)


def _non_fuseable(again: str = "", **more: Any) -> Callable[..., Any]:
    return click.option(
        "--non-fuseable",
        type=OneOf("--non-fuseable", POLICIES),
        default=POLICIES[:1] if more else POLICIES[0],
        show_default=True,
        metavar="|".join(POLICIES),
        help="What to do with a convolution or linear whose activation cannot be fused, because the quantisation of "
        f"its output does not imply it (for example a relu before a cat){again}. reject: leave both on the CPU. "
        "propagate: delegate both and keep the activation as a clamp. best: propagate if the delegate is verified, and "
        "reject if not.",
        **more,
    )


NON_FUSEABLE = _non_fuseable()
VERIFY = click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="Run the delegates in the TOSA reference model, and move to the CPU whatever differs from the quantised "
    "graph.",
)
TOLERANCE = click.option(
    "--tolerance",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="CODES",
    help="Accept operators that are up to this many codes off in the verification. A code is a quantised integer "
    "value.",
)
MIN_MACS = click.option(
    "--min-macs",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="NUMBER",
    help="Run a delegate with fewer MACs on the CPU if its neighbours run there. With 1, only a delegate without MACs.",
)
REPORT = click.option(
    "--report",
    "reports",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="Write what became of every operator, and why; repeatable. The suffix selects the format: "
    f"{', '.join(f'{suffix} {what}' for suffix, what in FORMATS.items())}.",
)
ALLOW_EMPTY = click.option(
    "--allow-empty",
    is_flag=True,
    help="Exit with status 0 instead of 3 if nothing is delegated.",
)
FAIL_UNDER = click.option(
    "--fail-under",
    type=Percent(0, 100),
    metavar="PERCENT",
    help="Exit with status 1 if less than this share of the multiply-accumulates is delegated, of "
    "the operators if there are none.",
)
ACCURACY = click.option(
    "--accuracy",
    is_flag=True,
    help="Compare the quantised model with the float model on the calibration data, and show what each quantised unit "
    "costs: signal to noise as the net runs and alone, saturation, range used, worst channel.",
)
MIN_SQNR = click.option(
    "--min-sqnr",
    type=float,
    metavar="DB",
    help="Exit with status 1 if an output has a lower signal to quantisation noise ratio on any compared sample; "
    "implies --accuracy.",
)
RECIPE = click.option(
    "--recipe",
    type=FILE,
    metavar="RECIPE.json",
    help="Quantise by this recipe of safe-arm tune, instead of --activations, --per-tensor and --keep-float.",
)
QUIET = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Print warnings and errors only.",
)
VERBOSE = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Show what the libraries print, and the traceback of a failure.",
)


_QUANTISED_AND_LOWERED = (
    click.option(
        "--activations",
        type=OneOf("--activations", ("8", "16")),
        default="8",
        show_default=True,
        metavar="8|16",
        help="Bits of an activation. 16 needs +int16 in the profile, which an Ethos-U has. Weights have 8 bits.",
    ),
    click.option(
        "--per-tensor",
        is_flag=True,
        help="Use one scale for each weight instead of one for each channel.",
    ),
    click.option(
        "--keep-float",
        multiple=True,
        metavar="MODULE|TYPE",
        help="Leave a module float, by its path (blocks.0.conv), or all modules of a type (Conv2d); repeatable.",
    ),
    click.option(
        "--io",
        type=OneOf("--io", ("float", "int8")),
        default="float",
        show_default=True,
        metavar="float|int8",
        help="Type of the program's inputs and outputs. With int8, their scales and zero points are methods of the "
        "program, such as forward_input0_scale.",
    ),
    click.option(
        "--system-config",
        metavar="NAME",
        help="Vela's system configuration, for an Ethos-U, such as Ethos_U85_SYS_DRAM_Mid. Default: ExecuTorch's "
        "choice for the family.",
    ),
    click.option(
        "--memory-mode",
        metavar="NAME",
        help="Vela's memory mode, for an Ethos-U, such as Shared_Sram. Default: ExecuTorch's choice for the family.",
    ),
    click.option(
        "--config",
        type=FILE,
        metavar="FILE.ini",
        help="Vela's configuration file, for an Ethos-U.",
    ),
    VERIFY,
    TOLERANCE,
    REPORT,
    QUIET,
    ISOLATED,
)


_FOOTPRINT = (
    click.option(
        "--footprint",
        is_flag=True,
        help="Show what the program takes on the device: flash, planned memory, kernels on the CPU and, for an "
        "Ethos-U, Vela's summary of each delegate.",
    ),
    click.option(
        "--max-sram",
        type=Bytes("--max-sram"),
        metavar="BYTES",
        help="Exit with status 1 if planned memory plus the SRAM of the largest delegate exceed this, such as 512K; "
        "for an Ethos-U.",
    ),
    click.option(
        "--max-flash",
        type=Bytes("--max-flash"),
        metavar="BYTES",
        help="Exit with status 1 if the .pte is larger than this, such as 2M.",
    ),
    click.option(
        "--max-cycles",
        type=click.IntRange(min=0),
        metavar="NUMBER",
        help="Exit with status 1 if Vela estimates more cycles for all delegates together; for an Ethos-U.",
    ),
    click.option(
        "--operators",
        type=FILE,
        metavar="FILE.yaml",
        help="Write the kernels that the .pte calls on the CPU, in the format of ExecuTorch's selective build.",
    ),
)


def footprint_options(command: Command) -> Command:
    """Give a command the options that say what a program may take on the device."""
    return _with(_FOOTPRINT, command)


def lowering_options(command: Command, again: str = "", **more: Any) -> Command:
    """Give a command the options that say how a model is quantised, lowered and verified."""
    or_random = ""
    if command.__name__ == "check":
        or_random = ", or the word random"
    options = (
        click.option(
            "--target",
            type=OneOf("target", TARGETS),
            required=True,
            metavar="TARGET",
            help=f"What to compile for: {', '.join(TARGETS)}{again}.",
            **more,
        ),
        click.option(
            "--profile",
            type=Suggested((*PROFILE_NAMES, f"{DEFAULT_PROFILE}+int16")),
            metavar="SPEC",
            help=f"TOSA specification for vgf and tosa: {', '.join(PROFILE_NAMES)}, with extensions such as "
            f"+int16{again}. Default {DEFAULT_PROFILE}. A profile without INT exports the model in float and needs no "
            "calibration. An Ethos-U has its own profile.",
            **more,
        ),
        _non_fuseable(again, **more),
        MIN_MACS,
        click.option(
            "--calibrate",
            type=FILE,
            metavar="DATA.npz",
            help="Calibration data: an .npz with one array for each input, whose first axis is the samples"
            f"{or_random}.",
        ),
        *_QUANTISED_AND_LOWERED,
    )
    return _with(options, command)


def matrix_options(command: Command) -> Command:
    """Give a command the same options; target, profile and policy may be given again."""
    return lowering_options(command, again="; repeatable", multiple=True, cls=Varied)


def _with(options: tuple[Callable[..., Any], ...], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


#: Limits, list of kernels and baseline of a request that takes no footprint for them.
_NO_FOOTPRINT = (Limits(), None, None)


def request_of(params: Mapping[str, Any], *, random_allowed: bool = False) -> Request:
    """Return the request that a command's parameters make.

    Args:
        params: by name; a parameter that the command does not have has the default of ``Request``.
        random_allowed: whether ``--calibrate random`` will do.

    Raises:
        UsageError: a profile the target does not have, or options that do not go together.
    """
    bits = int(params["activations"])
    calibration = params["calibrate"]
    target = params["target"]
    profile = _profile(target, params["profile"], bits)
    at_random = calibration == RANDOM
    if at_random and not random_allowed:
        raise UsageError(
            "--calibrate random is for safe-arm check, a first look: with the ranges of random inputs, a .pte "
            f"would be useless; give samples of real data, --calibrate DATA.npz{whence('calibrate')}"
        )
    if params["io"] == "int8" and bits == 16:
        raise UsageError(
            "--io int8 needs 8-bit activations; with --activations 16 leave --io out"
        )
    check_verification(params["tolerance"], params["non_fuseable"], params["verify"])
    limits = Limits(*map(params.get, ("max_sram", "max_flash", "max_cycles")))
    require_ethos_u(target, ("max_sram", "max_cycles"), params)
    vela = vela_of(target, params)
    if not params["quiet"]:
        note_overridden()
    takes_footprint = limits, params.get("operators"), params.get("against")
    values = {
        **params,
        "footprint": params.get("footprint") or takes_footprint != _NO_FOOTPRINT,
        "accuracy": params.get("accuracy") or params.get("min_sqnr") is not None,
        "profile": profile,
    }
    fields = Request.__dataclass_fields__.keys() & values.keys()
    return Request(
        **{name: values[name] for name in fields},
        policy=params["non_fuseable"],
        quantisation=Quantisation(
            calibration=None if at_random else calibration,
            random=at_random,
            activations=bits,
            per_tensor=params["per_tensor"],
            keep_float=params["keep_float"],
            recipe=params.get("recipe"),
        ),
        vela=vela,
        integer_io=params["io"] == "int8",
        limits=limits,
    )


def check_verification(codes: int, policy: str, verify: bool) -> None:
    """Refuse a tolerance, and the policy best, for a verification that is left out."""
    if policy == "best" and not verify:
        raise UsageError(
            "--non-fuseable best propagates what is verified, and --no-verify leaves the verification out; "
            "leave --no-verify out, or give --non-fuseable reject or propagate"
            f"{whence('non_fuseable')}"
        )
    if codes and not verify:
        raise UsageError(
            f"--tolerance is for the verification, which --no-verify leaves out{whence('tolerance')}"
        )


def _profile(target: str, asked: str | None, activations: int) -> Profile:
    """Return the profile a target compiles for, if it can run such activations."""
    try:
        profile = profile_for(target, asked)
    except UsageError as error:
        raise UsageError(f"{error}{whence('profile')}") from error
    if activations == 16 and "int16" not in profile.parts:
        if not profile.integer:
            raise UsageError(
                f"--activations 16 quantises, and {profile.text} is a float profile; leave one of them out"
            )
        raise UsageError(
            f"--activations 16 needs the int16 extension, which {profile.text} does not have; give --profile "
            f"{profile.text}+int16, or an Ethos-U ({', '.join(ETHOS_U_PROFILES)})"
        )
    return profile
