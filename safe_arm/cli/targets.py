"""The targets and TOSA profiles ``safe-arm export`` accepts, checked without loading torch."""

from __future__ import annotations

from dataclasses import dataclass

from safe_arm.cli.spelling import similar
from safe_arm.core.errors import UsageError, one_of

DEFAULT_PROFILE = "TOSA-1.0+INT+FP"
#: The profiles that ``EthosUCompileSpec`` gives each family; a test compares.
ETHOS_U_PROFILES = {
    "ethos-u55": "TOSA-1.0+INT+int16+int4+u55",
    "ethos-u65": "TOSA-1.0+INT+int16+int4+u55",
    "ethos-u85": "TOSA-1.0+INT+int16+int4+cf",
}
#: Vela's accelerator configurations.
ETHOS_U_MACS = {
    "ethos-u55": (32, 64, 128, 256),
    "ethos-u65": (256, 512),
    "ethos-u85": (128, 256, 512, 1024, 2048),
}
TARGETS = (
    "vgf",
    "tosa",
    *(f"{family}-{macs}" for family, sizes in ETHOS_U_MACS.items() for macs in sizes),
)
#: The values of ``safe_arm.partitioner.checks.Policy``, whose import loads torch; a test compares.
POLICIES = ("reject", "propagate", "best")

PROFILE_NAMES = (DEFAULT_PROFILE, "TOSA-1.0+INT", "TOSA-1.0+FP")
VERSIONS = ("TOSA-1.0", "TOSA-1.1")
#: The extensions of all versions; an ExecuTorch that does not know one refuses it later.
EXTENSIONS = {
    "INT": ("int16", "int4", "int64", "shape", "var", "cf", "u55", "8k"),
    "FP": ("bf16", "fp8e4m3", "fp8e5m2", "int64", "shape", "fft", "var", "cf", "8k"),
}


@dataclass(frozen=True)
class Profile:
    """A TOSA specification string, and the profiles and extensions in it."""

    text: str
    parts: tuple[str, ...]

    @property
    def integer(self) -> bool:
        """Return whether the profile computes in integers, so that the model must be quantised."""
        return "INT" in self.parts


def accept(what: str, value: str, accepted: tuple[str, ...]) -> str:
    """Return ``value`` if it is accepted.

    Raises:
        UsageError: it is not; the message lists the accepted values, near matches first.
    """
    if value in accepted:
        return value
    names = dict.fromkeys((*similar(value, accepted), *accepted))
    raise one_of(what, value, list(names))


def profile_of(text: str) -> Profile:
    """Take a TOSA specification string such as ``TOSA-1.0+INT+FP+int16`` apart.

    Raises:
        UsageError: an unknown version, no profile, or an extension that none of the profiles has.
    """
    version, *parts = text.split("+")
    profiles = [part for part in parts if part in EXTENSIONS]
    extensions = {each for part in profiles for each in EXTENSIONS[part]}
    if version not in VERSIONS or not profiles or len(set(parts)) < len(parts):
        names = list(dict.fromkeys((*similar(text, PROFILE_NAMES)[:1], *PROFILE_NAMES)))
        names[-1] = f"{names[-1]}, each with extensions such as +int16"
        raise one_of("profile", text, names)
    for part in parts:
        if part not in EXTENSIONS and part not in extensions:
            accepted = sorted(f"+{each}" for each in extensions)
            raise one_of(f"profile {text!r}: extension", f"+{part}", accepted)
    return Profile(text, tuple(parts))


def profile_for(target: str, asked: str | None) -> Profile:
    """Return the profile a target compiles for.

    Args:
        target: one of ``TARGETS``.
        asked: what the user asked for, None for the target's default.

    Raises:
        UsageError: an unknown profile, or any for an Ethos-U.
    """
    if not target.startswith("ethos-u"):
        return profile_of(asked or DEFAULT_PROFILE)
    own = profile_of(ETHOS_U_PROFILES[target.rpartition("-")[0]])
    if asked is not None:
        missing = [part for part in profile_of(asked).parts if part not in own.parts]
        cannot = "has a profile of its own"
        if missing:
            cannot = f"cannot do {', '.join(missing)}"
        raise UsageError(
            f"profile {asked!r}: {target} {cannot}; it has {own.text}, so leave --profile out"
        )
    return own
