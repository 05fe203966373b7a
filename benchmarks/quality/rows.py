"""All rows, by group."""

from __future__ import annotations

from pathlib import Path

from benchmarks.quality import composites, decoders, operators, trained_nets, whole_nets
from benchmarks.quality.subjects import Entry

_GROUPS = (operators, composites, decoders, whole_nets, trained_nets)
ENTRIES: list[Entry] = [entry for group in _GROUPS for entry in group.ENTRIES]
#: The module that has a row, by the row's name.
SOURCES = {entry.name: Path(str(group.__file__)) for group in _GROUPS for entry in group.ENTRIES}
