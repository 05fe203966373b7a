"""The exit statuses of ``safe-arm``."""

#: The export failed, something was demoted, or too little is delegated; the command's help says more.
FAILED = 1
#: The input is wrong, and the user can fix it.
BAD_INPUT = 2
#: All went well, and nothing is delegated.
NOTHING_DELEGATED = 3
INTERRUPTED = 130
