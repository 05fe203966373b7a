"""JSON documents against the schemas that the package ships."""

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, validate

import safe_arm


def schema(name: str) -> dict[str, Any]:
    """Return a schema by its place in the package, such as ``cli/check``."""
    return json.loads((Path(safe_arm.__file__).parent / f"{name}.schema.json").read_text())


def check_document(document: Any, name: str) -> None:
    """Assert that a schema is one, and that a document is as it says."""
    validate(document, schema(name), Draft202012Validator)
