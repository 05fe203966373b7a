"""The quantisation of a model, operator by operator, as a value. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Level = Literal["int16", "float"]
LEVELS: tuple[Level, ...] = ("int16", "float")
#: The observers of an activation's range: torchao's histogram, least and largest value, or their running average.
OBSERVERS = ("histogram", "minmax", "average")


@dataclass(frozen=True)
class Choice:
    """One way to quantise a model.

    Attributes:
        activations: bits of an activation by default, 8 or 16.
        per_channel: one scale for each channel of a weight, not one for the whole.
        observer: the observer of activations' ranges, one of ``OBSERVERS``.
        operators: the level of operators that are quantised otherwise, by name in the exported graph.
    """

    activations: int = 8
    per_channel: bool = True
    observer: str = OBSERVERS[0]
    operators: Mapping[str, Level] = field(default_factory=dict)

    def with_levels(self, names: Iterable[str], level: Level | None) -> Choice:
        """Return the choice with some operators at another level; None takes the default back."""
        merged: dict[str, Level | None] = {**self.operators}
        merged.update(dict.fromkeys(names, level))
        operators = {}
        for name, own_level in sorted(merged.items()):
            if own_level is not None:
                operators[name] = own_level
        return replace(self, operators=operators)

    def of_level(self, level: Level) -> tuple[str, ...]:
        """Return the names of the operators of a level."""
        return tuple(name for name, each in self.operators.items() if each == level)

    @property
    def default(self) -> dict[str, Any]:
        """The quantisation of operators that are not named, by field."""
        return {
            name: vars(self)[name]
            for name in ("activations", "per_channel", "observer")
        }

    @property
    def key(self) -> str:
        """The same text for the same choice."""
        content = {"default": self.default, "operators": dict(self.operators)}
        return json.dumps(content, sort_keys=True)
