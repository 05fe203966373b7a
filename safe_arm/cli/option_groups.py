"""The groups in which the help of a command with many options lists them."""

from __future__ import annotations

from collections.abc import Mapping

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


def write_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> bool:
    """Write the options of a command in groups; write nothing if they are few.

    Returns:
        Whether they were written.
    """
    group_of = {name: group for group, names in GROUPS.items() for name in names}
    records: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
    records[GENERAL] = []
    number = 0
    for option in command.get_params(ctx):
        record = option.get_help_record(ctx)
        if record is not None and isinstance(option, click.Option):
            number += 1
            records[group_of.get(option.name or "", GENERAL)].append(record)
    if number < MANY:
        return False
    for heading, listed in records.items():
        if listed:
            with formatter.section(heading):
                formatter.write_dl(listed)
    return True
