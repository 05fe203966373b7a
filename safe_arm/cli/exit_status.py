"""What each exit status of ``safe-arm`` means."""

#: The export failed, something was demoted or too little is delegated: the command's help says which.
FAILED = 1
#: The user can mend it.
BAD_INPUT = 2
#: All went well, and nothing is delegated.
NOTHING_DELEGATED = 3
INTERRUPTED = 130
