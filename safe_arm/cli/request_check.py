"""Check a request before torch is loaded, and read the data that the check needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from safe_arm.bundle.manifest import BundleFiles
from safe_arm.cli.calibration import read_arrays
from safe_arm.cli.model_file import check_model_file, quantising_operator
from safe_arm.cli.module_names import modules_of, paths_of
from safe_arm.cli.output_file import check_folder, check_output
from safe_arm.cli.project_defaults import explicit, flag, whence
from safe_arm.cli.request import HOW_TO_QUANTISE
from safe_arm.cli.required_tools import check_tools
from safe_arm.cli.vela_options import check_vela
from safe_arm.core.errors import UsageError
from safe_arm.report.formats import format_of

if TYPE_CHECKING:
    import numpy as np

    from safe_arm.cli.request import Request


@dataclass(frozen=True)
class Checked:
    """The data for the quantisation of a float model.

    Attributes:
        arrays: the calibration data by name; None if that is random.
        kept_float: the paths of the modules that are not quantised.
    """

    arrays: dict[str, np.ndarray] | None
    kept_float: tuple[str, ...]


def check_request(request: Request) -> Checked | None:
    """Check everything that can be checked before torch is loaded.

    Returns:
        The data for the quantisation; None if the model is not to be quantised.

    Raises:
        UsageError: something cannot work.
    """
    check_model_file(request.model)
    _check_files(request)
    quantised = quantising_operator(request.model)
    if quantised:
        _check_quantised(request, quantised)
    elif request.profile.integer and not request.quantisation.given:
        options = ["give --calibrate DATA.npz to quantise it"]
        if request.compare:
            options.append("--calibrate random for a first look")
        if not request.target.startswith("ethos-u"):
            options.append("export in float with --profile TOSA-1.0+FP")
        raise UsageError(
            f"{request.profile.text} needs a quantised model: {', or '.join(options)}"
        )
    if not request.profile.integer:
        _check_float(request)
    if request.quantisation.recipe is not None:
        _check_recipe(request, quantised)
    checked = None
    if request.profile.integer and not quantised:
        asked = request.quantisation
        arrays = None
        kept: tuple[str, ...] = ()
        if asked.keep_float:
            kept = paths_of(asked.keep_float, modules_of(request.model))
        if asked.calibration is not None:
            arrays = read_arrays(asked.calibration)
        checked = Checked(arrays, kept)
    check_tools(request.target, verify=request.verify)
    if request.vela.given:
        check_vela(request.target, request.vela)
    return checked


def _check_recipe(request: Request, quantised: str) -> None:
    """Refuse a recipe that cannot be read, is of no use here, or is given beside options that it replaces."""
    from safe_arm.tuning.recipe_file import read_recipe

    what = ""
    if not request.profile.integer:
        what = f"{request.profile.text} is a float profile"
    if quantised:
        what = f"the model is quantised already ({quantised})"
    if what:
        raise UsageError(f"--recipe says how to quantise, and {what}; leave it out")
    if request.stock:
        raise UsageError(
            "--stock uses stock's quantiser, which takes no recipe; leave one of them out"
        )
    beside = _given(*HOW_TO_QUANTISE)
    if beside:
        raise UsageError(
            f"--recipe says how to quantise; leave out {beside}, or the recipe"
        )
    read_recipe(request.quantisation.recipe or "")


def _given(*names: str) -> str:
    """Return those of some options that the command line has, as the user writes them."""
    return ", ".join(map(flag, filter(explicit, names)))


def _check_files(request: Request) -> None:
    """Check that each file can be written, and is none that is read or written already."""
    taken = [request.model]
    written: list[Path] = []
    if request.quantisation.calibration is not None:
        taken.append(request.quantisation.calibration)
    if request.output is not None:
        check_output(request.output, taken)
        if request.output.suffix not in ("", ".pte"):
            raise UsageError(
                f"output {str(request.output)!r} has to end in .pte, the suffix of an ExecuTorch program; give -o "
                f"{request.output.with_suffix('.pte')}"
            )
        written.append(request.output)
        if request.bundle:
            for path in BundleFiles.beside(request.output).written:
                check_output(path, taken, "-o", written)
                written.append(path)
    for report in request.reports:
        check_output(report, taken, "--report", written)
        format_of(report)
        written.append(report)
    if request.operators is not None:
        check_output(request.operators, taken, "--operators", written)
    if request.repro_dir is not None:
        check_folder(request.repro_dir, "--repro-dir")


def _check_quantised(request: Request, operator: str) -> None:
    """Refuse what is of no use for a model that is quantised already; a project's defaults for others are left out."""
    useless = _given("calibrate", *HOW_TO_QUANTISE, "accuracy", "min_sqnr")
    if useless:
        raise UsageError(
            f"model {str(request.model)!r} is quantised already ({operator}) and taken as it is; leave out "
            f"{useless}, or give the float program"
        )
    if not request.profile.integer:
        raise UsageError(
            f"model {str(request.model)!r} is quantised already ({operator}), and {request.profile.text} computes in "
            f"float; leave --profile out, or give the float program{whence('profile')}"
        )


def _check_float(request: Request) -> None:
    """Refuse what a float profile cannot do."""
    if request.accuracy:
        name = "accuracy" if request.min_sqnr is None else "min_sqnr"
        raise UsageError(
            f"{flag(name)} compares a quantised model with the float one, and {request.profile.text} is "
            f"a float profile; leave it out, or give an integer profile{whence(name)}"
        )
    if request.integer_io:
        raise UsageError(
            f"--io int8 needs a quantised model, and {request.profile.text} is a float profile; leave --io out"
            f"{whence('io')}"
        )
