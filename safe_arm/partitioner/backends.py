"""Stand-ins for the Arm backends, which lower safe_arm's delegates with its passes and reuse trial lowerings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

from torch.export import ExportedProgram

from safe_arm._compat.marker import names_in
from safe_arm._compat.upstream import (
    BackendDetails,
    CompileSpec,
    EthosUBackend,
    PreprocessResult,
    TOSABackend,
    VgfBackend,
)
from safe_arm.partitioner import shelf
from safe_arm.partitioner.lowering import preprocess


def ours_among(stock: type[BackendDetails]) -> SimpleNamespace:
    """Return a stand-in for the class among whose subclasses ExecuTorch looks for a backend, by name."""

    def subclasses() -> list[Any]:
        backends = []
        for backend in stock.__subclasses__():
            is_arm = backend in (TOSABackend, VgfBackend, EthosUBackend)
            backends.append(_ArmBackend(backend) if is_arm else backend)
        return backends

    return SimpleNamespace(__subclasses__=subclasses, __wrapped__=stock)


class _ArmBackend:
    """A stand-in for a backend that takes trial lowerings from the shelf; stock lowers delegates that are not ours."""

    def __init__(self, stock: Any) -> None:
        self._stock = stock
        self.__name__ = stock.__name__
        #: Results of trials by program, from its copy until its preprocessing.
        self._results: WeakKeyDictionary[ExportedProgram, PreprocessResult] = (
            WeakKeyDictionary()
        )

    def copy_exported_program_for_preprocess(
        self, edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> ExportedProgram:
        """Copy a program, but not one that a trial has lowered (1.5 on)."""
        result = _from_trials(edge_program, compile_specs)
        if result is None:
            copy_of: ExportedProgram = self._stock.copy_exported_program_for_preprocess(
                edge_program, compile_specs
            )
            return copy_of
        self._results[edge_program] = result
        return edge_program

    def preprocess(
        self, edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        """Lower a delegate, unless a trial has done so."""
        result = self._results.pop(edge_program, None)
        result = result or _from_trials(edge_program, compile_specs)
        return result or preprocess(self._stock, edge_program, compile_specs)

    def preprocess_multimethod(
        self,
        edge_programs: Mapping[str, list[ExportedProgram]],
        compile_specs: Mapping[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        """Lower the delegates of all methods one after the other, as stock does, with this ``preprocess``."""
        stock = self._stock.preprocess_multimethod.__func__
        results: dict[str, list[PreprocessResult]]
        results = stock(self, edge_programs, compile_specs)
        return results


def _from_trials(
    edge_program: ExportedProgram, compile_specs: Sequence[CompileSpec]
) -> PreprocessResult | None:
    if names_in(compile_specs) is None:
        return None
    return shelf.take(edge_program, compile_specs)
