"""Errors that safe_arm raises on purpose."""


class SafeArmError(Exception):
    """Root of every error safe_arm raises on purpose."""


class UsageError(SafeArmError, ValueError):
    """The caller passed something that cannot work; the message says what would.

    The command line turns it into one line on stderr and exit status 2.
    """


class DemotionError(SafeArmError):
    """A delegate cannot be lowered whole, and ``strict`` forbids to demote what is in the way."""


class FallbackError(SafeArmError):
    """What another backend of the chain lowered, its runtime does not load."""


class DemotionWarning(UserWarning):
    """Part of the program stays off the accelerator because the backend fails on it."""


class InternalError(SafeArmError):
    """An invariant of safe_arm itself broke: a bug of ours, please report it."""


def one_of(what: str, value: object, accepted: list[str]) -> UsageError:
    """Return the error for a value outside a closed set, naming the accepted values.

    Args:
        what: the name of the option, as the user knows it.
        value: what the user gave.
        accepted: every accepted value, in the order to print them.
    """
    return UsageError(f"{what} {value!r} is not known; accepted: {', '.join(accepted)}")
