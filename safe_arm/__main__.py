"""``python -m safe_arm``: the command line where ``safe-arm`` is not on PATH."""

from safe_arm.cli.main import main

main()
