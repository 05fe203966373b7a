"""Options that take an amount of memory."""

from __future__ import annotations

import re

import click

from safe_arm.core.errors import UsageError

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3}


class Bytes(click.ParamType):
    """A number of bytes, ``524288``, or of KiB, MiB or GiB, ``512K``, ``0.5MiB``.

    Args:
        option: what an error calls it.
    """

    name = "bytes"

    def __init__(self, option: str) -> None:
        self.option = option

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        match = re.fullmatch(
            r"(\d+(?:\.\d+)?) ?([KMG]?)(?:i?B)?", str(value).strip(), re.I
        )
        if match is None:
            raise UsageError(
                f"{self.option} {value!r} is no amount of memory; give bytes, or KiB as in 512K, MiB as in 2M"
            )
        return round(float(match[1]) * 1024 ** _POWERS[match[2].upper()])
