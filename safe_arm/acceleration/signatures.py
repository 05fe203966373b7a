"""Cache a graph signature's tables of parameters and buffers.

``ExportGraphSignature.inputs_to_buffers`` and its like build a table of all inputs for every lookup, and passes look
them up several times for every node. A pass that makes a new signature makes a stock one.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputSpec

from safe_arm.acceleration import switch

Table = Mapping[str, str]
_Entry = tuple[list[str], list[InputSpec], Table]


def cache_tables(program: ExportedProgram) -> None:
    """Let the program of a delegate build the tables of its signature once, until an input changes."""
    stock = program.graph_signature
    if not switch.is_on() or isinstance(stock, CachedSignature):
        return
    program._graph_signature = CachedSignature(stock.input_specs, stock.output_specs)


class CachedSignature(ExportGraphSignature):
    """A signature that keeps its tables until an input changes."""

    @property
    def inputs_to_parameters(self) -> Table:
        return self._table("inputs_to_parameters")

    @property
    def inputs_to_buffers(self) -> Table:
        return self._table("inputs_to_buffers")

    @property
    def inputs_to_lifted_tensor_constants(self) -> Table:
        return self._table("inputs_to_lifted_tensor_constants")

    def _table(self, name: str) -> Table:
        tables: dict[str, _Entry] = vars(self).setdefault("_tables", {})
        specs = list(self.input_specs)
        names = [spec.arg.name for spec in specs]
        entry = tables.get(name)
        if (
            entry is None
            or entry[0] != names
            or not all(map(operator.is_, entry[1], specs))
        ):
            build = vars(ExportGraphSignature)[name].fget
            entry = tables[name] = (names, specs, build(self))
        return entry[2]
