"""``python -m safe_arm.cli``."""

from safe_arm.cli.main import main

main()
