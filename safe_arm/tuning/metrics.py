"""The metrics of a trial: signal to quantisation noise, or a function of the user's."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from safe_arm.core.errors import UsageError
from safe_arm.tuning.trial import Budget

Net = Callable[..., object]


@dataclass(frozen=True)
class Goal:
    """The target of a trial.

    Attributes:
        name: the name of the metric.
        at_least: the value to reach; infinite for the best within the budget.
        function: gives a net's value, the larger the better; None for the signal to quantisation noise in dB.
        budget: what an inference may take.
    """

    name: str
    at_least: float
    function: Callable[[Net], float] | None = None
    budget: Budget = field(default_factory=Budget)

    def text(self, value: float) -> str:
        """Return a value with its name or its unit, as a sentence says it."""
        if self.function is None:
            return f"an SQNR of {value:.4g} dB"
        return f"{self.name} {value:.4g}"

    def of(self, net: Net) -> float:
        """Return a net's value.

        Raises:
            UsageError: the function raises, or gives no number.
        """
        assert self.function is not None
        try:
            with torch.no_grad():
                value = float(self.function(net))
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            raise UsageError(
                f"metric {self.name} raises {type(error).__name__}: {text}; fix the function"
            ) from error
        if math.isnan(value):
            raise UsageError(
                f"metric {self.name} gives NaN; expected a number, larger is better"
            )
        return value

    def check_deterministic(self, net: Net) -> None:
        """Ask twice.

        Raises:
            UsageError: it gives two values for one net, or none.
        """
        value = self.of(net)
        again = self.of(net)
        if again != value:
            raise UsageError(
                f"metric {self.name} is not deterministic: {value:g}, then {again:g} for the same net; seed what it "
                "draws, so that trials can be compared"
            )


def load_function(text: str) -> Callable[[Net], float]:
    """Return the function that ``FILE.py:FUNCTION`` names; the file is run.

    Raises:
        UsageError: there is no such file or function, or the file cannot be run.
    """
    path, _, name = text.rpartition(":")
    if not path or not name.isidentifier():
        raise UsageError(
            f"--metric {text!r} names no function; expected FILE.py:FUNCTION"
        )
    if not Path(path).is_file():
        raise UsageError(f"--metric {text!r}: file {path!r} does not exist")
    spec = importlib.util.spec_from_file_location("safe_arm_metric", path)
    if spec is None or spec.loader is None:
        raise UsageError(
            f"--metric {text!r}: {path!r} is no Python file; expected FILE.py:FUNCTION"
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"--metric {text!r}: {path} fails with {type(error).__name__}: {error}; fix the file"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"--metric {text!r}: {path} has no function {name!r}")
    return function
