"""``safe-arm run``: a script of ExecuTorch's, with our classes in place of Arm's."""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from safe_arm.cli.targets import POLICIES, accept
from safe_arm.core.errors import UsageError

if TYPE_CHECKING:
    from safe_arm._compat.upstream import TOSAPartitioner
    from safe_arm.safe_partitioner import SafeArmPartitioner


@click.command(
    no_args_is_help=True, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option("-m", "module", is_flag=True, help="SCRIPT is the name of an installed module, not a file.")
@click.option(
    "--non-fuseable", default=POLICIES[0], show_default=True, metavar="|".join(POLICIES), help="As for safe-arm export."
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(script: str, arguments: tuple[str, ...], module: bool, non_fuseable: str) -> None:
    """Run SCRIPT with its ARGUMENTS, our partitioner and quantisers where it makes Arm's.

    For scripts that get theirs from ExecuTorch's own factories (executorch.backends.arm.util._factory), as
    aot_arm_compiler.py and the Arm recipes do:

    safe-arm run -m executorch.backends.arm.scripts.aot_arm_compiler --model_name=model.py --delegate --quantize

    stderr gets a summary of each program that was partitioned. The exit status is the script's.
    """
    accept("--non-fuseable", non_fuseable, POLICIES)
    if not module and not Path(script).is_file():
        raise UsageError(f"there is no file {script}; for an installed module put -m before its name")
    if module and not _is_module(script):
        raise UsageError(f"there is no module {script}; leave -m out for a file")
    from rich.console import Console

    from safe_arm._compat.factories import filtered
    from safe_arm.recipes import safe_partitioner, safe_quantizer
    from safe_arm.report.terminal import print_report

    partitioners: list[SafeArmPartitioner] = []

    def noted(partitioner: TOSAPartitioner) -> SafeArmPartitioner:
        partitioners.append(safe_partitioner(partitioner, non_fuseable=non_fuseable))
        return partitioners[-1]

    with filtered(noted, safe_quantizer):
        _execute(script, arguments, module)
    if not partitioners:
        click.echo(f"{script} made no Arm partitioner; for other flows see safe_arm.recipes.safe", err=True)
    for partitioner in partitioners:
        if partitioner.report is not None:
            print_report(partitioner.report, Console(stderr=True))


def _execute(script: str, arguments: tuple[str, ...], module: bool) -> None:
    sys.argv = [script, *arguments]
    try:
        if module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(script).resolve().parent))
            runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # what it would be in is not there
        return False
