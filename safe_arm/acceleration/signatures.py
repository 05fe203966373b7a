"""Cache a graph signature's tables of parameters and buffers.

``ExportGraphSignature.inputs_to_buffers`` and its like build a table of all inputs for every lookup, and passes look
them up several times for every node. A pass that makes a new signature makes a stock one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputSpec, OutputSpec
from torch.fx import GraphModule

from safe_arm.acceleration import switch
from safe_arm.acceleration.shortcuts import any_taken

Populate = Callable[[dict[str, Any], GraphModule, ExportGraphSignature], None]


def cache_tables(program: ExportedProgram) -> None:
    """Let the program of a delegate build the tables of its signature once, until an input changes."""
    stock = program.graph_signature
    if not switch.is_on() or isinstance(stock, CachedSignature):
        return
    program._graph_signature = CachedSignature(stock.input_specs, stock.output_specs)


def looking_up(stock: Populate) -> Populate:
    """Wrap the step that gives the inputs of a new trace their metadata: it looks up each of them."""

    def populate(
        metadata: dict[str, Any],
        graph_module: GraphModule,
        signature: ExportGraphSignature,
    ) -> None:
        if any_taken():
            signature = CachedSignature(signature.input_specs, signature.output_specs)
        stock(metadata, graph_module, signature)

    return populate


def _counting(name: str) -> Any:
    """Return a method of a list that also counts a change."""
    stock = getattr(list, name)

    def changed(self: CountedSpecs, *args: Any, **kwargs: Any) -> Any:
        self.changes += 1
        return stock(self, *args, **kwargs)

    return changed


class CountedSpecs(list[InputSpec]):
    """A list of inputs that counts its changes, so that a lookup need not compare all of them."""

    changes = 0
    insert = _counting("insert")
    append = _counting("append")
    extend = _counting("extend")
    pop = _counting("pop")
    remove = _counting("remove")
    clear = _counting("clear")
    reverse = _counting("reverse")
    sort = _counting("sort")
    __setitem__ = _counting("__setitem__")
    __delitem__ = _counting("__delitem__")
    __iadd__ = _counting("__iadd__")


def _cached(name: str) -> Any:
    """Return a property of a signature that is built once, until an input changes."""

    def table_of(self: CachedSignature) -> Any:
        specs = self.input_specs
        if not isinstance(specs, CountedSpecs):
            # A pass has set another list.
            specs = self.input_specs = CountedSpecs(specs)
        tables = vars(self).setdefault("_tables", {})
        built_from, changes, table = tables.get(name, (None, 0, {}))
        if built_from is not specs or changes != specs.changes:
            table = vars(ExportGraphSignature)[name].fget(self)
            tables[name] = (specs, specs.changes, table)
        return table

    return property(table_of)


class CachedSignature(ExportGraphSignature):
    """A signature that keeps its tables until an input changes.

    A change of the list of inputs is seen, and a renaming by ``replace_all_uses``. A spec that is in the list must not
    be changed by hand.
    """

    inputs_to_parameters = _cached("inputs_to_parameters")
    inputs_to_buffers = _cached("inputs_to_buffers")
    inputs_to_lifted_tensor_constants = _cached("inputs_to_lifted_tensor_constants")
    non_persistent_buffers = _cached("non_persistent_buffers")
    user_inputs = _cached("user_inputs")

    def __init__(
        self, input_specs: list[InputSpec], output_specs: list[OutputSpec]
    ) -> None:
        super().__init__(CountedSpecs(input_specs), output_specs)

    def replace_all_uses(self, old: str, new: str) -> None:
        super().replace_all_uses(old, new)
        vars(self).pop("_tables", None)
