"""Errors that safe_arm raises on purpose."""

import warnings


class SafeArmError(Exception):
    """Base class of every error that safe_arm raises on purpose."""


class UsageError(SafeArmError, ValueError):
    """The caller passed something that cannot work; the message says what works instead.

    The command line turns it into one line on stderr and exit status 2.
    """


class InstallationError(UsageError, ImportError):
    """A package that safe_arm needs is missing or cannot be imported; the message has the command that fixes it."""


class DemotionError(SafeArmError):
    """A delegate cannot be lowered as a whole, and ``strict`` forbids demoting operators."""


class FallbackError(SafeArmError):
    """The runtime cannot load a delegate of another backend in the chain."""


class ToolError(SafeArmError):
    """An external tool rejected a delegate, crashed or did not finish.

    Attributes:
        tool: its name.
        command: a shell command that repeats the failure in a directory with its input; empty if there is none.
        file_name: what the command calls the input.
        data: the input; empty once ``safe_arm.core.tool_input.keep`` has written it and completed the command.
    """

    def __init__(
        self,
        tool: str,
        message: str,
        command: str = "",
        file_name: str = "",
        data: bytes = b"",
    ) -> None:
        super().__init__(message)
        self.tool = tool
        self.command = command
        self.file_name = file_name
        self.data = data


class MachineError(SafeArmError):
    """The machine cannot do what a lowering needs, for example because the disk is full; no operator is to blame."""


class InvariantError(SafeArmError):
    """A pass returned a graph that cannot compute what the graph before it computed.

    Attributes:
        what: the node it shows in, and the difference.
        invariant: the name of the broken invariant.
        broken_by: the pass after which it no longer held.
        before: the passes that had changed the graph until then, in order.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.invariant = ""
        self.broken_by = ""
        self.before: tuple[str, ...] = ()

    def __str__(self) -> str:
        before = ", ".join(self.before) or "none"
        return f"invariant {self.invariant!r} broken by {self.broken_by}: {self.what} (changed before it by: {before})"


class DemotionWarning(UserWarning):
    """Part of the program falls back to the CPU because the backend fails on it."""


class UnprovenWarning(UserWarning):
    """No delegate is verified, because the tools for it are not installed."""


class FloatProofWarning(UserWarning):
    """The quantised graph does not compute the exported float net."""


class DoubtfulInputWarning(UserWarning):
    """The model or its calibration data make the export poor, whatever the backend does."""


def warn_of_doubt(doubt: str) -> None:
    """Warn of doubtful inputs where the function is called that calls this one."""
    warnings.warn(doubt, DoubtfulInputWarning, stacklevel=3)


class InternalError(SafeArmError):
    """An invariant of safe_arm itself broke: please report this bug."""


def one_of(what: str, value: object, accepted: list[str]) -> UsageError:
    """Return the error for a value outside a closed set, naming the accepted values.

    Args:
        what: the name of the option, as the user knows it.
        value: what the user gave.
        accepted: every accepted value, in the order to print them.
    """
    return UsageError(f"{what} {value!r} is not known; accepted: {', '.join(accepted)}")
