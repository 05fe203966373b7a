import os
import sys
from pathlib import Path

import pytest

# ExecuTorch looks for model-converter and Vela on PATH only, and the environment is not activated.
os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
# The tests run in two processes; small nets gain nothing from threads in each.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def by_measurement_alone(monkeypatch):
    """No invariants between passes: only what a delegate computes can give a fault away."""
    from safe_arm import SafeArmPassManager

    monkeypatch.setattr(SafeArmPassManager, "invariants", ())
