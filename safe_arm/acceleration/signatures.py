"""Cache a graph signature's tables of parameters and buffers.

``ExportGraphSignature.inputs_to_buffers`` and its like build a table of all inputs for every lookup, and passes look
them up several times for every node.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from contextlib import AbstractContextManager

from torch.export.graph_signature import ExportGraphSignature, InputSpec

from safe_arm.acceleration.shortcuts import shortcuts, taking

Table = Mapping[str, str]
_Entry = tuple[ExportGraphSignature, list[str], list[InputSpec], Table]


def cached() -> AbstractContextManager[None]:
    """Keep the tables of signatures until an input changes, in this thread, while the block runs."""
    return taking(signatures={})


def built_once(stock: property) -> property:
    """Wrap a property that builds a table: the block of ``cached`` builds it once until an input changes."""
    build = stock.fget
    assert build is not None

    def table(self: ExportGraphSignature) -> Table:
        tables = shortcuts().signatures
        if tables is None:
            return build(self)
        specs = list(self.input_specs)
        names = [spec.arg.name for spec in specs]
        entry: _Entry | None = tables.get((id(self), build))
        if (
            entry is None
            or entry[1] != names
            or not all(map(operator.is_, entry[2], specs))
        ):
            # The entry holds the signature and its specs, so that no other objects get their ids.
            entry = tables[id(self), build] = (self, names, specs, build(self))
        return entry[3]

    return property(table)


#: The properties that build a table.
TABLES = (
    "inputs_to_parameters",
    "inputs_to_buffers",
    "inputs_to_lifted_tensor_constants",
)
