"""The recipe: a choice for one model, as a file described by ``recipe.schema.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safe_arm.core.errors import UsageError
from safe_arm.core.whole_file import replace_file
from safe_arm.tuning.quantisation_choice import LEVELS, OBSERVERS, Choice

#: Goes up when a field changes its meaning or goes away.
SCHEMA_VERSION = 1
_AGAIN = "write one with safe-arm tune"


@dataclass(frozen=True)
class Recipe:
    """A choice, its model and target, and the measurements behind it.

    Attributes:
        choice: the quantisation of the model.
        operators, sha256: the number of the exported graph's operators, and the hash that identifies it.
        target, profile: the target and the profile that it was tuned for.
        modules: the path of the module of each operator that the choice names.
        measured: the figures of the trial behind it, as in the schema; empty if written by hand.
        versions: the versions of safe_arm and the packages behind it.
    """

    choice: Choice
    operators: int
    sha256: str
    target: str
    profile: str
    modules: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as JSON's own types."""
        content: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "model": {"operators": self.operators, "sha256": self.sha256},
            "target": self.target,
            "profile": self.profile,
            "default": self.choice.default,
            "operators": dict(self.choice.operators),
            "modules": dict(self.modules),
            "versions": dict(self.versions),
        }
        if self.measured:
            content["measured"] = dict(self.measured)
        return content

    def rendered(self) -> bytes:
        """Return the recipe as JSON."""
        return (json.dumps(self.to_dict(), indent=1) + "\n").encode()

    def save(self, path: Path) -> None:
        """Write the recipe, whole or not at all."""
        replace_file(path, self.rendered())


def read_recipe(path: str | Path) -> Recipe:
    """Read a recipe.

    Raises:
        UsageError: it is missing, none, or of another schema.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        if isinstance(error, UnicodeDecodeError):
            why = "it is not a text file"
        raise UsageError(
            f"recipe {str(path)!r} cannot be read: {why}; {_AGAIN}"
        ) from error
    version = None
    if isinstance(content, dict):
        version = content.get("schema_version")
    if version is None:
        raise UsageError(
            f"recipe {str(path)!r} is no recipe: it has no schema_version; {_AGAIN}"
        )
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"recipe {str(path)!r} has schema {version!r}, and this safe-arm reads {SCHEMA_VERSION}; {_AGAIN}"
        )
    try:
        return _recipe(content)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        what = str(error)
        if isinstance(error, KeyError):
            what = f"it has no {error}"
        raise UsageError(
            f"recipe {str(path)!r} is damaged: {what}; {_AGAIN}"
        ) from error


def _recipe(content: Mapping[str, Any]) -> Recipe:
    default = content["default"]
    operators = content["operators"]
    _accept("activations", default["activations"], (8, 16))
    _accept("per_channel", default["per_channel"], (True, False))
    _accept("observer", default["observer"], OBSERVERS)
    for name, level in operators.items():
        _accept(f"operator {name!r}", level, LEVELS)
    choice = Choice(**default, operators=dict(sorted(operators.items())))
    model = content["model"]
    return Recipe(
        choice,
        model["operators"],
        model["sha256"],
        content["target"],
        content["profile"],
        content.get("modules", {}),
        content.get("measured", {}),
        content.get("versions", {}),
    )


def _accept(
    what: str,
    value: object,
    accepted: tuple[object, ...],
) -> None:
    if value not in accepted or type(value) not in map(type, accepted):
        raise ValueError(
            f"{what} is {value!r}; accepted: {', '.join(map(str, accepted))}"
        )
