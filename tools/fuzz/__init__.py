"""A differential fuzzer: random nets through the package, and through stock on the same seeds."""

import sys
from pathlib import Path

# What the tests share is found as it is in pytest.
sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
