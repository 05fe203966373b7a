"""A command that needs ExecuTorch: it reports what is missing or untested, and groups many options in its help."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import click

#: The names of the parameters in each group; a command shows those that it has, in its own order.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Target": (
        *("target", "profile", "non_fuseable", "min_macs"),
        *("system_config", "memory_mode", "config"),
    ),
    "Quantisation": (
        *("calibrate", "activations", "per_tensor", "keep_float", "io", "recipe"),
    ),
    "Verification": ("verify", "tolerance", "strict", "stock"),
    "Accuracy": ("accuracy", "min_sqnr", "metric", "at_least"),
    "Device": ("footprint", "max_sram", "max_flash", "max_cycles", "operators"),
    "Gate": ("fail_under", "against", "update", "junit", "allow_empty"),
    "Output": (
        *("output", "directory", "reports", "repro_dir", "bundle", "front", "as_json"),
    ),
    "Many programs": ("results", "jobs"),
}
#: The group of the options that are in no other.
GENERAL = "General"
#: Number of options from which a command shows groups.
MANY = 15


class ExecuTorchCommand(click.Command):
    """A command that runs only where ExecuTorch, torch, torchao and tosa-tools are installed."""

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the options to the help, in groups if they are many."""
        group_of = {name: group for group, names in GROUPS.items() for name in names}
        records: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        records[GENERAL] = []
        number = 0
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None and isinstance(option, click.Option):
                number += 1
                records[group_of.get(option.name or "", GENERAL)].append(record)
        if number < MANY:
            super().format_options(ctx, formatter)
            return
        for heading, listed in records.items():
            if listed:
                with formatter.section(heading):
                    formatter.write_dl(listed)

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
