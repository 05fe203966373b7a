"""Notes on nodes, where export carries them along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.fx import Node


def notes_on(node: Node) -> Mapping[str, Any]:
    """Return the notes on a node by their keys."""
    return node.meta.get("custom") or {}


def write_note(node: Node, key: str, note: object) -> None:
    """Write a note on a node."""
    node.meta["custom"] = {**notes_on(node), key: note}


def note_on(node: Node, key: str) -> str:
    """Return a note that was written on a node; empty if there is none."""
    return str(notes_on(node).get(key, ""))
