"""Vela's own check of its options, which takes half a second and is made before the long work."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from functools import lru_cache

from safe_arm.core.errors import UsageError, one_of
from safe_arm.core.processes import Ended
from safe_arm.core.toolchain import run_vela

#: A missing network, which Vela complains of only after it has accepted its options.
_NO_NETWORK = "safe-arm-asks-about-options-only.tosa"
#: A value that is outside of a closed set, as argparse says it.
_CHOICE = re.compile(r"argument --([\w-]+): invalid choice: '(.*?)' \(choose from (.*)")
#: Any other complaint of argparse.
_PARSED = re.compile(r"^vela: error: (.*)", re.MULTILINE)
#: The module of errors that Vela raises on purpose.
_CONSIDERED = "ethosu.vela.errors."
#: A section that the configuration does not have, as Vela says it.
_SECTION = re.compile(r"Section (System_Config|Memory_Mode)\.\S+ not found")
_FAMILY = re.compile(r"ethos[-_]?(u\d\d)", re.IGNORECASE)
_OTHER_FAMILY = (
    "the system config {!r} is that of another family than the target {!r}: the cycles are those of a memory and a "
    "clock that its boards do not have; name one of the target's own, or leave it out"
)


@lru_cache(maxsize=64)
def check_vela_flags(flags: tuple[str, ...]) -> None:
    """Let Vela check its options; those that it accepts are not checked again in this process.

    Args:
        flags: as ExecuTorch gives them to Vela.

    Raises:
        UsageError: it does not take them; the message has Vela's own words, and the values that it accepts.
    """
    with tempfile.TemporaryDirectory(prefix="safe_arm-") as folder:
        # Vela makes a folder of that name where the user works, if it is given none.
        ended = run_vela(*flags, f"--output-dir={folder}/output", _NO_NETWORK)
    accepts = ended.good or _NO_NETWORK in ended.last_words
    if not accepts and ended.started and not ended.timed_out:
        raise _refusal(ended, flags)


def doubt_of_family(flags: Sequence[str]) -> str:
    """Return the warning about a system config of another family than the accelerator; empty if there is none."""
    target = option_of(flags, "accelerator-config")
    config = option_of(flags, "system-config")
    families = {*_families_of(target), *_families_of(config)}
    return _OTHER_FAMILY.format(config, target) if len(families) > 1 else ""


def option_of(flags: Sequence[str], name: str) -> str:
    """Return the value of an option among Vela's flags, the last one; empty if it is not given."""
    value = ""
    for flag in flags:
        if flag.startswith(f"--{name}="):
            value = flag.partition("=")[2]
    return value


def _refusal(ended: Ended, flags: Sequence[str]) -> UsageError:
    choice = _CHOICE.search(ended.output)
    if choice:
        name, value, accepted = choice.groups()
        what = "target" if name == "accelerator-config" else f"Vela's --{name}"
        return one_of(what, value, re.findall(r"[\w.-]+", accepted))
    parsed = _PARSED.search(ended.output)
    if parsed:
        return UsageError(f'Vela says: {parsed[1]}; "vela --help" lists its options')
    if not ended.last_words.startswith(_CONSIDERED):
        given = " ".join(flags)
        return UsageError(f"Vela fails on {given}: {ended.last_words}")
    complaint = (
        re.sub(r"^[\w.]+Error: ", "", ended.last_words)
        .strip("'\"")
        .removeprefix("Error: ")
        .rstrip(".")
    )
    if "input file" in complaint:
        where = '"vela --list-config-files" lists what it has'
    else:
        config = option_of(flags, "config")
        where = f'"vela --list-configs {config}" lists what it has'
        where += _sections(complaint, config, flags)
    return UsageError(f"Vela says: {complaint}; {where}")


def _sections(complaint: str, config: str, flags: Sequence[str]) -> str:
    """Return the sections of a configuration that may stand where one is missing, as the end of a sentence."""
    section = _SECTION.search(complaint)
    if section is None:
        return ""
    listed = run_vela(f"--list-configs={config}")
    names = re.findall(rf"^ *{section[1]}\.(\S+)", listed.stdout, re.MULTILINE)
    family = _families_of(option_of(flags, "accelerator-config"))
    fitting = [name for name in names if _families_of(name) in (set(), family)]
    return f": {', '.join(fitting or names)}" if names else ""


def _families_of(text: str) -> set[str]:
    return set(map(str.lower, _FAMILY.findall(text)))
