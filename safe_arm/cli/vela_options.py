"""Vela's options besides the accelerator, checked with Vela itself before the long work."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safe_arm.cli.project_defaults import flag, whence
from safe_arm.cli.request import VELAS, Vela
from safe_arm.core.errors import UsageError
from safe_arm.core.vela_flags import check_vela_flags

#: The options that ``EthosUCompileSpec`` fills in for each family; a test compares.
DEFAULTS = {
    "ethos-u55": Vela("Ethos_U55_High_End_Embedded", "Shared_Sram", "Arm/vela.ini"),
    "ethos-u65": Vela("Ethos_U65_High_End", "Dedicated_Sram_384KB", "Arm/vela.ini"),
    "ethos-u85": Vela("Ethos_U85_SYS_DRAM_Mid", "Sram_Only", "Arm/vela.ini"),
}


def require_ethos_u(
    target: str, names: Sequence[str], params: Mapping[str, Any]
) -> None:
    """Refuse parameters that are given for a target that is no Ethos-U.

    Raises:
        UsageError: at least one is.
    """
    used = [name for name in names if params.get(name) is not None]
    if used and not target.startswith("ethos-u"):
        raise UsageError(
            f"{', '.join(map(flag, used))}: for an Ethos-U only, Vela does not compile for {target}; leave it out"
            f"{whence(*used)}"
        )


def vela_of(target: str, params: Mapping[str, Any]) -> Vela:
    """Return the options of the command line for Vela.

    Raises:
        UsageError: the target is no Ethos-U, or a name that ExecuTorch cannot hand on to Vela.
    """
    require_ethos_u(target, VELAS, params)
    options = {}
    for name in VELAS:
        value = params[name]
        if value is None:
            continue
        # An existing file needs its absolute path, because Vela looks for two/parts.ini among its own.
        if isinstance(value, Path) and value.is_file():
            value = value.resolve()
        options[name] = str(value)
        if re.search(r"\s", options[name]):
            raise UsageError(
                f"{flag(name)} {options[name]!r} has a space in it, at which ExecuTorch would split it; rename it"
                f"{whence(name)}"
            )
    return Vela(**options)


def check_vela(target: str, vela: Vela) -> None:
    """Let Vela check its options.

    Raises:
        UsageError: it does not take them; the message is Vela's own.
    """
    flags = [f"{flag(name)}={value}" for name, value in _every(target, vela).items()]
    check_vela_flags((f"--accelerator-config={target}", "--output-format=raw", *flags))


def with_board(target: str, vela: Vela) -> str:
    """Return a target's name, for an Ethos-U with the system config and the memory mode that its cycles depend on."""
    if not target.startswith("ethos-u"):
        return target
    every = _every(target, vela)
    return f"{target} ({every['system_config']}, {every['memory_mode']})"


def _every(target: str, vela: Vela) -> dict[str, str]:
    """Return Vela's options, those that ExecuTorch fills in too."""
    return {**DEFAULTS[target.rpartition("-")[0]].given, **vela.given}
