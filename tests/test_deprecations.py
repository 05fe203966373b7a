"""What is deprecated says when it goes, and is gone by then: docs/stability.md promises it."""

import ast
from pathlib import Path

import pytest
from packaging.version import Version

import safe_arm

PACKAGE = Path(__file__).parents[1] / "safe_arm"
OURS = {path: path.read_text() for path in PACKAGE.rglob("*.py")}


def overdue(source, version):
    """The calls that warn of a deprecation and name no release in which it goes, or one that is reached."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or "DeprecationWarning" not in {getattr(a, "id", "") for a in node.args}:
            continue
        _, goes, release = ast.unparse(node.args[0]).strip("'\"").rpartition("goes in safe_arm ")
        if not goes or Version(release) <= Version(version):
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize(
    ("message", "is_overdue"),
    [("use b; a goes in safe_arm 0.3", False), ("use b; a goes in safe_arm 0.2", True), ("use b", True)],
)
def test_one_is_overdue_once_its_release_is_reached(message, is_overdue):
    source = f"import warnings\ndef a():\n    warnings.warn({message!r}, DeprecationWarning, stacklevel=2)\n"
    assert bool(overdue(source, "0.2.0")) == is_overdue


def test_nothing_is_overdue():
    assert [call for text in OURS.values() for call in overdue(text, safe_arm.__version__)] == []
