"""Where safe_arm reaches into the Arm backend, and how it stays out of everybody else's way.

Each place is a ``Patch``, all of them installed on first use. A wrapper asks for the record of this thread's lowering
or partitioning, or looks for our marker in the compile specs, and behaves exactly as stock without. A record belongs
to one thread of control, so a stock export and a safe one can run side by side. ``uninstall`` puts everything back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from executorch.exir.backend.backend_details import PreprocessResult
from executorch.exir.backend.partitioner import Partitioner
from executorch.exir.program import EdgeProgramManager
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat import (
    chains,
    compilers,
    deep_graphs,
    methods,
    own_states,
    stock_reasons,
)
from safe_arm._compat.batch_norms import unguard_folds
from safe_arm._compat.patches import Patch, Patches
from safe_arm._compat.prepared_models import unwatch_models
from safe_arm._compat.upstream import (
    ArmPassManager,
    CheckProperQuantization,
    CompileSpec,
    EthosUBackend,
    TOSABackend,
    VgfBackend,
)
from safe_arm.core.errors import InvariantError
from safe_arm.core.lowering_record import breach, current_lowering, lowering
from safe_arm.core.origins import ORIGIN_KEY
from safe_arm.core.partitioning_record import current_partitioning

#: Key of the compile spec that marks a delegate as ours; its value names the corrections to apply.
MARKER = "safe_arm"

_found: WeakKeyDictionary[ExportedProgram, PreprocessResult] = WeakKeyDictionary()
_installed = Patches()


def marker(names: Sequence[str]) -> CompileSpec:
    """Return the compile spec that carries the names of the corrections to a delegate's lowering."""
    return CompileSpec(MARKER, ",".join(names).encode())


class Hooks(Protocol):
    """What the wrappers ask the rest of safe_arm."""

    def manager_of(self, names: tuple[str, ...]) -> Callable[..., ArmPassManager]:
        """Return the maker of pass managers for the names of the corrections that a marker carries."""

    def ready(
        self, program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult | None:
        """Return what a trial made of a program, None if it has to be lowered."""

    def cut(
        self, program: ExportedProgram, kept_whole: frozenset[torch._ops.OpOverload]
    ) -> ExportedProgram:
        """Return the program to go on with after our delegates were cut out of one.

        Args:
            program: the rest of it.
            kept_whole: operators that stayed whole for our delegates, if a partitioner follows.
        """

    def partitioning(self) -> AbstractContextManager[object]:
        """Return what is entered for the time in which all methods of a program are partitioned and lowered."""

    def fits(self, program: ExportedProgram) -> Callable[[bytes], None]:
        """Return what raises if a TOSA graph does not take and give what the caller of a delegate's program does."""

    def lowering(self) -> AbstractContextManager[object]:
        """Return what is entered for the time in which one of our delegates is lowered."""

    def patches(self) -> tuple[Patch, ...]:
        """Return what is installed beside the seams, and round them."""


def record(graph_module: GraphModule) -> None:
    """Note where the nodes of a finished graph come from, and their shapes."""
    left, nodes = current_lowering(), graph_module.graph.nodes
    left.origins.update(
        {node.name: node.meta[ORIGIN_KEY] for node in nodes if ORIGIN_KEY in node.meta}
    )
    values = ((node.name, node.meta.get("val")) for node in nodes)
    left.shapes.append(
        {name: value.shape for name, value in values if isinstance(value, torch.Tensor)}
    )


def install(hooks: Hooks) -> None:
    """Install all patches or none; a second call does nothing."""
    _installed.install(patches(hooks))


def uninstall() -> None:
    """Put everything back as ExecuTorch, torchao and torch made it."""
    _installed.uninstall()
    unguard_folds()
    unwatch_models()


def patches(hooks: Hooks) -> tuple[Patch, ...]:
    """Return every patch, in the order to install."""
    backends = (TOSABackend, VgfBackend, EthosUBackend)
    copy = "copy_exported_program_for_preprocess"  # 1.5 on
    return (
        *(
            Patch(
                each,
                "preprocess",
                partial(_preprocess, hooks),
                "Our delegates are lowered our way.",
            )
            for each in backends
        ),
        *(
            Patch(each, copy, partial(_copy, hooks), "Copies what a trial lowered.")
            for each in backends
            if hasattr(each, copy)
        ),
        Patch(
            TOSABackend,
            "_preprocess",
            partial(_tosa_step, hooks),
            "Here all backends come by their TOSA graph.",
        ),
        Patch(
            ArmPassManager,
            "transform_to_backend_pipeline",
            _pipeline,
            "Our delegates get a corrected pipeline.",
        ),
        Patch(
            CheckProperQuantization,
            "is_node_supported",
            _quantization_check,
            "It refuses what we can now lower.",
        ),
        Patch(
            EdgeProgramManager,
            "to_backend",
            partial(_to_backend, hooks),
            "No partitioner is told its method, and constants are taken away (E2).",
        ),
        *chains.patches(_is_ours),
        *own_states.patches(_is_ours),
        *compilers.PATCHES,
        *deep_graphs.PATCHES,
        *stock_reasons.PATCHES,
        *hooks.patches(),
    )


def _is_ours(partitioner: Partitioner) -> bool:
    return marked_names(partitioner) is not None


def marked_names(partitioner: Partitioner) -> tuple[str, ...] | None:
    """Return the names in the marker on a partitioner's delegates, None if they are not ours."""
    spec = getattr(partitioner, "delegation_spec", None)
    return None if spec is None else _marked(spec.compile_specs)


def _marked(compile_specs: list[CompileSpec]) -> tuple[str, ...] | None:
    values = [
        bytes(spec.value).decode() for spec in compile_specs if spec.key == MARKER
    ]
    return tuple(filter(None, values[0].split(","))) if values else None


def _preprocess(
    hooks: Hooks, stock: Callable[..., PreprocessResult]
) -> Callable[..., PreprocessResult]:
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        names = _marked(compile_specs)
        if names is None:
            return stock(edge_program, compile_specs)
        # In a trial, what ships of another method's delegate that is alike is not to be taken.
        is_trial = current_lowering().is_trial
        result = (
            None
            if is_trial
            else _found.pop(edge_program, None)
            or hooks.ready(edge_program, compile_specs)
        )
        if result is not None:
            return result
        stock_specs = [spec for spec in compile_specs if spec.key != MARKER]
        ours = replace(current_lowering(), manager=hooks.manager_of(names), breaches=[])
        with lowering(ours) as left, hooks.lowering():
            result = stock(edge_program, stock_specs)
        if left.breaches:
            raise left.breaches[0]
        return result

    return preprocess


def _copy(
    hooks: Hooks, stock: Callable[..., ExportedProgram]
) -> Callable[..., ExportedProgram]:
    def copy(
        cls: type, edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> ExportedProgram:
        if (
            _marked(compile_specs) is None
            or (result := hooks.ready(edge_program, compile_specs)) is None
        ):
            return stock(cls, edge_program, compile_specs)
        _found[edge_program] = result
        return edge_program

    return copy


def _tosa_step(
    hooks: Hooks, stock: Callable[..., PreprocessResult]
) -> Callable[..., PreprocessResult]:
    def preprocess(
        edge_program: ExportedProgram, *args: Any, **kwargs: Any
    ) -> PreprocessResult:
        left = current_lowering()
        if left.manager is None:
            return stock(edge_program, *args, **kwargs)
        check = hooks.fits(edge_program)
        result = stock(edge_program, *args, **kwargs)
        try:
            check(result.processed_bytes)
        except InvariantError as error:
            breach(error)
        left.flatbuffers.append(bytes(result.processed_bytes))
        return result

    return preprocess


def _pipeline(stock: Callable[..., GraphModule]) -> Callable[..., GraphModule]:
    def pipeline(
        self: ArmPassManager,
        exported_program: ExportedProgram,
        graph_module: GraphModule,
    ) -> GraphModule:
        ours = current_lowering().manager
        if ours is None or type(self) is not ArmPassManager:
            return stock(self, exported_program, graph_module)
        corrected: ArmPassManager = ours(self.compile_spec)
        return corrected.transform_to_backend_pipeline(exported_program, graph_module)

    return pipeline


def _quantization_check(stock: Callable[..., bool]) -> Callable[..., bool]:
    def is_node_supported(
        self: CheckProperQuantization,
        submodules: Mapping[str, torch.nn.Module],
        node: Node,
    ) -> bool:
        return node in current_partitioning().accepted or stock(self, submodules, node)

    return is_node_supported


def _to_backend(
    hooks: Hooks, stock: Callable[..., EdgeProgramManager]
) -> Callable[..., EdgeProgramManager]:
    def to_backend(
        self: EdgeProgramManager, partitioner: Partitioner | dict[str, Partitioner]
    ) -> EdgeProgramManager:
        each = (
            partitioner
            if isinstance(partitioner, dict)
            else dict.fromkeys(self._edge_programs, partitioner)
        )
        ours = [method for method in each if marked_names(each[method]) is not None]
        for method in ours:  # A delegate takes its constants out of a dict that the program as exported has too (E2).
            self._edge_programs[method]._constants = dict(
                self._edge_programs[method]._constants
            )
        with hooks.partitioning():
            manager = stock(self, methods.named(each))
        for method in ours:
            manager._edge_programs[method] = hooks.cut(
                manager._edge_programs[method], chains.kept_for(each[method])
            )
        return manager

    return to_backend
