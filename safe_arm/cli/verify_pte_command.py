"""``safe-arm verify-pte``: check a program file against the record of its verification."""

from __future__ import annotations

from pathlib import Path

import click

from safe_arm._compat.installation import executorch_imported
from safe_arm.bundle.manifest import BundleFiles, read_manifest, require_program
from safe_arm.cli.executorch_command import ExecuTorchCommand
from safe_arm.cli.exit_status import FAILED
from safe_arm.cli.options import FILE, QUIET, VERBOSE
from safe_arm.cli.quiet import quiet as silenced


@click.command("verify-pte", cls=ExecuTorchCommand)
@click.argument("program", type=FILE, metavar="MODEL.pte")
@click.option(
    "--manifest",
    type=FILE,
    metavar="FILE",
    help="The proof, if it is not MODEL.proof.json next to the program.",
)
@QUIET
@VERBOSE
@click.pass_context
def verify_pte(
    ctx: click.Context,
    program: Path,
    manifest: Path | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Check MODEL.pte against the record of its verification.

    safe-arm export --bundle writes MODEL.bpte and MODEL.proof.json next to the program and, for what Vela or
    model-converter compiled, MODEL.proof.zip. The hashes of the program, of each delegate, of the weights and of
    the expected outputs are compared first. Then Vela or model-converter compiles each delegate again, and the
    program runs on the bundled inputs: Arm delegates in the TOSA reference model, VGF also on Vulkan if there is a
    driver, everything else in ExecuTorch's runtime. Each line says what passed, what failed, what was not run and
    why, or what was recorded at export.

    \b
    Exit status:
        0  nothing is wrong
        1  something is wrong
        2  bad input, such as a manifest of another program
    """
    require_program(program)
    # Read before torch is loaded, so that what is missing is said at once.
    read_manifest(manifest or BundleFiles.beside(program).manifest)
    with silenced(not verbose):
        with executorch_imported():
            from safe_arm.bundle.verifying import verify_pte as verify

        checked = verify(program, manifest=manifest)
    for step in checked.steps:
        if not quiet or step.outcome == "failed":
            detail = " ".join(step.detail.split())
            name = f"{step.name}: {detail}" if detail else step.name
            click.echo(f"{step.outcome:<8} {name}")
    if not checked.good:
        ctx.exit(FAILED)
