"""A graph signature's tables of parameters and buffers, built once and not once a lookup.

``ExportGraphSignature.inputs_to_buffers`` and its like build a table of all inputs whenever one is looked up, which
passes do several times for every node.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from contextlib import AbstractContextManager

from torch.export.graph_signature import ExportGraphSignature, InputSpec

from safe_arm.acceleration.shortcuts import shortcuts, taking

Table = Mapping[str, str]
_Known = tuple[ExportGraphSignature, list[str], list[InputSpec], Table]


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
        specs, names = (
            list(self.input_specs),
            [spec.arg.name for spec in self.input_specs],
        )
        known: _Known | None = tables.get((id(self), build))
        # The signature and its specs are kept: they are told by identity.
        if (
            known is None
            or known[1] != names
            or not all(map(operator.is_, known[2], specs))
        ):
            known = tables[id(self), build] = (self, names, specs, build(self))
        return known[3]

    return property(table)


#: The properties that build a table.
TABLES = (
    "inputs_to_parameters",
    "inputs_to_buffers",
    "inputs_to_lifted_tensor_constants",
)
