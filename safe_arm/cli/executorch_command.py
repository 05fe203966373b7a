"""A command that needs ExecuTorch and first reports, in one line, what is missing or untested."""

from __future__ import annotations

import warnings
from typing import Any

import click

from safe_arm.cli.option_groups import write_options


class ExecuTorchCommand(click.Command):
    """A command that runs only where ExecuTorch, torch, torchao and tosa-tools are installed."""

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the options to the help, in groups if they are many."""
        if not write_options(self, ctx, formatter):
            super().format_options(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it.

        Raises:
            InstallationError: something is not installed.
        """
        from safe_arm._compat.installation import require_packages
        from safe_arm._compat.untested import warn_if_untested

        require_packages()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_if_untested()
        for warning in caught:
            click.echo(f"Warning: {warning.message}", err=True)
        return super().invoke(ctx)
