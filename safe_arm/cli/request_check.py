"""A request checked as far as that goes before torch is loaded, and what was read on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from safe_arm.bundle.bundle_files import BundleFiles
from safe_arm.cli.calibration import read_arrays
from safe_arm.cli.model_file import check_model_file, quantising_operator
from safe_arm.cli.module_names import modules_of, paths_of
from safe_arm.cli.output_file import check_output
from safe_arm.cli.project_defaults import explicit, whence
from safe_arm.cli.required_tools import check_tools
from safe_arm.cli.vela_options import check_vela
from safe_arm.core.errors import UsageError
from safe_arm.report.formats import format_of

if TYPE_CHECKING:
    import numpy as np

    from safe_arm.cli.request import Request


@dataclass(frozen=True)
class Checked:
    """What checking a request found.

    Attributes:
        arrays: the calibration data by name; None if there is none, or none is wanted.
        quantises: whether the model is to be quantised.
        kept_float: the paths of the modules that are not.
    """

    arrays: dict[str, np.ndarray] | None = None
    quantises: bool = False
    kept_float: tuple[str, ...] = ()


def check_request(request: Request) -> Checked:
    """Check everything that can be checked before torch is loaded.

    Raises:
        UsageError: something cannot work.
    """
    check_model_file(request.model)
    _check_files(request)
    quantised = quantising_operator(request.model)
    if quantised:
        _check_quantised(request, quantised)
    elif request.profile.integer and not request.quantisation.given:
        alternative = (
            ""
            if request.target.startswith("ethos-u")
            else ", or export in float with --profile TOSA-1.0+FP"
        )
        raise UsageError(
            f"{request.profile.text} needs a quantised model: give --calibrate DATA.npz to quantise it{alternative}"
        )
    if not request.profile.integer:
        _check_float(request)
    if request.quantisation.recipe is not None:
        _check_recipe(request, quantised)
    quantises, asked = request.profile.integer and not quantised, request.quantisation
    kept = (
        paths_of(asked.keep_float, modules_of(request.model))
        if quantises and asked.keep_float
        else ()
    )
    arrays = read_arrays(asked.calibration) if quantises and asked.calibration else None
    check_tools(request.target, verify=request.verify)
    if request.vela.given:
        check_vela(request.target, request.vela)
    return Checked(arrays, quantises, kept)


def _check_recipe(request: Request, quantised: str) -> None:
    """Refuse a recipe that cannot be read, has nothing to say, or is given beside what it has a say in."""
    from safe_arm.tuning.recipe_file import read_recipe

    asked = request.quantisation
    if quantised or not request.profile.integer:
        what = (
            f"the model is quantised already ({quantised})"
            if quantised
            else f"{request.profile.text} is a float profile"
        )
        raise UsageError(f"--recipe says how to quantise, and {what}; leave it out")
    given = {
        "activations": True,
        "per_tensor": asked.per_tensor,
        "keep_float": asked.keep_float,
    }
    beside = [
        f"--{name.replace('_', '-')}"
        for name, value in given.items()
        if value and explicit(name)
    ]
    if beside:
        raise UsageError(
            f"--recipe says it all; leave out {', '.join(beside)}, or the recipe"
        )
    read_recipe(asked.recipe or "")


def _check_files(request: Request) -> None:
    inputs = (request.model, *filter(None, (request.quantisation.calibration,)))
    if request.output is not None:
        check_output(request.output, inputs)
    beside = (
        BundleFiles.beside(request.output).written
        if request.output is not None and request.bundle
        else ()
    )
    for path in beside:
        check_output(path, (*inputs, *filter(None, (request.output,))), "-o")
    for index, report in enumerate(request.reports):
        taken = (
            *inputs,
            *filter(None, (request.output,)),
            *beside,
            *request.reports[:index],
        )
        check_output(report, taken, "--report")
        format_of(report)
    if request.operators is not None:
        check_output(
            request.operators,
            (*inputs, *filter(None, (request.output,)), *request.reports),
            "--operators",
        )


def _check_quantised(request: Request, operator: str) -> None:
    """Refuse what is of no use for a model that is quantised already; a project's defaults for others are left out."""
    asked = request.quantisation
    given = {
        "calibrate": asked.given,
        "activations": True,
        "per_tensor": asked.per_tensor,
        "keep_float": asked.keep_float,
        "accuracy": request.accuracy,
        "min_sqnr": request.min_sqnr is not None,
    }
    useless = [
        f"--{name.replace('_', '-')}"
        for name, value in given.items()
        if value and explicit(name)
    ]
    if useless:
        raise UsageError(
            f"model {str(request.model)!r} is quantised already ({operator}) and taken as it is; leave out "
            f"{', '.join(useless)}, or give the float program"
        )
    if not request.profile.integer:
        raise UsageError(
            f"model {str(request.model)!r} is quantised already ({operator}), and {request.profile.text} computes in "
            f"float; leave --profile out, or give the float program{whence('profile')}"
        )


def _check_float(request: Request) -> None:
    """Refuse what a float profile cannot do."""
    if request.compares_with_float:
        name = "accuracy" if request.accuracy else "min_sqnr"
        raise UsageError(
            f"--{name.replace('_', '-')} compares a quantised model with the float one, and {request.profile.text} is "
            f"a float profile; leave it out, or give an integer profile{whence(name)}"
        )
    if request.integer_io:
        raise UsageError(
            f"--io int8 needs a quantised model, and {request.profile.text} is a float profile; leave --io out"
            f"{whence('io')}"
        )
