"""Cache a graph signature's tables of parameters and buffers.

``ExportGraphSignature.inputs_to_buffers`` and its like build a table of all inputs for every lookup, and passes look
them up several times for every node. A pass that makes a new signature makes a stock one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, SupportsIndex

from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputSpec, OutputSpec
from torch.fx import GraphModule

from safe_arm.acceleration import switch
from safe_arm.acceleration.shortcuts import any_taken

Table = Mapping[str, str]
Populate = Callable[[dict[str, Any], GraphModule, ExportGraphSignature], None]


def cache_tables(program: ExportedProgram) -> None:
    """Let the program of a delegate build the tables of its signature once, until an input changes."""
    stock = program.graph_signature
    if not switch.is_on() or isinstance(stock, CachedSignature):
        return
    program._graph_signature = CachedSignature(stock.input_specs, stock.output_specs)


def forget_tables(program: ExportedProgram) -> None:
    """Give a program that goes back to the user a stock signature again."""
    ours = program.graph_signature
    if isinstance(ours, CachedSignature):
        program._graph_signature = ExportGraphSignature(
            list(ours.input_specs), ours.output_specs
        )


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


class CountedSpecs(list[InputSpec]):
    """A list of inputs that counts its changes, so that a lookup need not compare all of them."""

    changes = 0

    def insert(self, index: SupportsIndex, spec: InputSpec) -> None:
        self.changes += 1
        super().insert(index, spec)

    def append(self, spec: InputSpec) -> None:
        self.changes += 1
        super().append(spec)

    def extend(self, specs: Iterable[InputSpec]) -> None:
        self.changes += 1
        super().extend(specs)

    def pop(self, index: SupportsIndex = -1) -> InputSpec:
        self.changes += 1
        return super().pop(index)

    def remove(self, spec: InputSpec) -> None:
        self.changes += 1
        super().remove(spec)

    def clear(self) -> None:
        self.changes += 1
        super().clear()

    def reverse(self) -> None:
        self.changes += 1
        super().reverse()

    def sort(self, **options: Any) -> None:  # type: ignore[override]
        self.changes += 1
        super().sort(**options)

    def __setitem__(self, index: Any, spec: Any) -> None:
        self.changes += 1
        super().__setitem__(index, spec)

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        self.changes += 1
        super().__delitem__(index)


class CachedSignature(ExportGraphSignature):
    """A signature that keeps its tables until an input changes.

    A change of the list of inputs is seen, and a renaming by ``replace_all_uses``. A spec that is in the list must not
    be changed by hand.
    """

    def __init__(
        self, input_specs: list[InputSpec], output_specs: list[OutputSpec]
    ) -> None:
        super().__init__(CountedSpecs(input_specs), output_specs)

    @property
    def inputs_to_parameters(self) -> Table:
        return self._table("inputs_to_parameters")

    @property
    def inputs_to_buffers(self) -> Table:
        return self._table("inputs_to_buffers")

    @property
    def inputs_to_lifted_tensor_constants(self) -> Table:
        return self._table("inputs_to_lifted_tensor_constants")

    @property
    def non_persistent_buffers(self) -> Collection[str]:
        names: Collection[str] = self._table("non_persistent_buffers")
        return names

    @property
    def user_inputs(self) -> Collection[Any]:
        inputs: Collection[Any] = self._table("user_inputs")
        return inputs

    def replace_all_uses(self, old: str, new: str) -> None:
        super().replace_all_uses(old, new)
        vars(self).pop("_tables", None)

    def _table(self, name: str) -> Any:
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
