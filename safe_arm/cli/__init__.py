"""The command line: ``safe-arm``, or ``python -m safe_arm.cli``."""
