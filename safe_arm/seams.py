"""The list of everything that safe_arm replaces in ExecuTorch and torch while its partitioner is in use.

``patches`` lists each place with its reason; those that only make it faster stand in ``acceleration/wrappers.py``. A
wrapper asks for the record of this thread's lowering or partitioning or for its shortcuts, or looks for our marker in
the compile specs; without them it does what stock does. A record belongs to one thread of control, so that a stock
export and a safe one can run side by side. ``uninstall`` puts everything back. Quantising has places of its own in
torchao: ``_compat/batch_norms.py``, ``_compat/prepared_models.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from executorch.backends.arm import arm_vela
from executorch.backends.arm.vgf import backend as vgf_backend
from executorch.exir.backend import backend_api
from executorch.exir.backend.partitioner import Partitioner
from executorch.exir.program import EdgeProgramManager, _program
from torch.export import ExportedProgram
from torch.fx import GraphModule

from safe_arm._compat import compilers, methods, stock_reasons
from safe_arm._compat.chains import chained, is_wanted_later, kept_for
from safe_arm._compat.marker import is_ours, marked_names
from safe_arm._compat.own_states import with_own_states
from safe_arm._compat.patches import INSTALLED, Patch
from safe_arm._compat.upstream import (
    ArmPassManager,
    PreprocessResult,
    TOSABackend,
    tosa_supported_operators,
)
from safe_arm.acceleration import delegate_cuts, provenance, switch
from safe_arm.acceleration import wrappers as faster
from safe_arm.core.errors import InvariantError
from safe_arm.core.lowering_record import breach, current_lowering
from safe_arm.fallback.float_biases import with_float_biases
from safe_arm.fallback.leftovers import decompose_leftovers
from safe_arm.partitioner import backends, shelf
from safe_arm.verification.interface import fits

Preprocess = Callable[..., PreprocessResult]
ToEdge = Callable[..., EdgeProgramManager]


def install() -> None:
    """Install all patches or none; a second call does nothing."""
    INSTALLED.install(patches())


def uninstall() -> None:
    """Put everything back as ExecuTorch, torchao and torch made it."""
    INSTALLED.uninstall()


def patches() -> tuple[Patch, ...]:
    """Return every patch, in the order to install."""
    return (*needed(), *faster.patches())


def needed() -> tuple[Patch, ...]:
    """Return the patches without which a delegate dies or computes something else; none of them is in torch."""
    return (*_of_backends(), *_of_the_flow(), *_of_compilers(), *_of_passes())


def _of_backends() -> Iterator[Patch]:
    reason = "Our delegates are lowered our way; what a trial has lowered is not lowered again."
    yield Patch(backend_api, "BackendDetails", backends.ours_among, reason)
    reason = "All backends come by their TOSA graph here."
    yield Patch(TOSABackend, "_preprocess", _tosa_step, reason)


def _of_the_flow() -> Iterator[Patch]:
    yield Patch(
        _program,
        "_gen_edge_manager_for_partitioners",
        _generate,
        "A write of one state is lost; the next partitioner of a chain has decomposed what ours keeps whole.",
        "E4",
    )
    yield Patch(
        EdgeProgramManager,
        "to_backend",
        _to_backend,
        "A partitioner is not told its method; constants are taken out of the exported program.",
        "E2",
    )
    yield Patch(
        tosa_supported_operators,
        "chain",
        stock_reasons.noting_links,
        "A chain keeps its checks to itself; one refuses what we can lower.",
    )


def _of_compilers() -> Iterator[Patch]:
    yield Patch(
        vgf_backend,
        "subprocess",
        compilers.leashed_subprocess,
        "The converter may hang.",
    )
    yield Patch(
        vgf_backend,
        compilers.REQUIRE_CONVERTER,
        compilers.beside_the_interpreter_too,
        "The converter of an environment that is not activated is not on PATH.",
    )
    if arm_vela.has_vela:
        yield Patch(
            arm_vela,
            "vela",
            compilers.in_child,
            "Vela may hang, crash or end the process; it splits its arguments at the spaces in TMPDIR.",
        )


def _of_passes() -> Iterator[Patch]:
    yield Patch(
        ArmPassManager,
        "transform_to_backend_pipeline",
        _pipeline,
        "Our delegates get a corrected pipeline.",
    )


def _is_for_us_alone(partitioners: Iterable[Partitioner]) -> bool:
    """Tell whether there are partitioners, all ours, and none wants provenance as torch records it."""
    names = [marked_names(partitioner) for partitioner in partitioners]
    if not names or None in names:
        return False
    return not any(provenance.KEEP in of_one for of_one in names if of_one is not None)


def _generate(stock: ToEdge) -> ToEdge:
    """Wrap the way of exported programs to edge programs."""

    def generate(
        partitioners: Mapping[str, Sequence[Partitioner]],
        programs: Mapping[str, ExportedProgram],
        *args: Any,
        **kwargs: Any,
    ) -> EdgeProgramManager:
        own = dict(programs)
        for method, program in programs.items():
            if any(map(is_ours, partitioners.get(method, ()))):
                own[method] = with_own_states(program)
        chains = {method: chained(listed) for method, listed in partitioners.items()}
        every = [each for listed in partitioners.values() for each in listed]
        fast = switch.generating() if _is_for_us_alone(every) else nullcontext()
        with fast:
            return stock(chains, own, *args, **kwargs)

    return generate


def _to_backend(stock: ToEdge) -> ToEdge:
    """Wrap the way of edge programs to programs with delegates."""

    def to_backend(
        self: EdgeProgramManager, partitioner: Partitioner | Mapping[str, Partitioner]
    ) -> EdgeProgramManager:
        if isinstance(partitioner, Mapping):
            by_method = dict(partitioner)
        else:
            by_method = dict.fromkeys(self._edge_programs, partitioner)
        ours = [method for method, each in by_method.items() if is_ours(each)]
        for method in ours:
            # A delegate takes its constants out of a dict that the program as exported has too (E2).
            program = self._edge_programs[method]
            program._constants = dict(program._constants)
        only_ours = _is_for_us_alone(by_method.values())
        fast = switch.cutting() if only_ours else nullcontext()
        with fast:
            with shelf.shelf_open():
                named = methods.named(by_method, _tagged)
                manager = stock(self, named)
            for method in ours:
                program = manager._edge_programs[method]
                # The next partitioner of a chain cannot take all that our delegates were cut out of.
                kept_whole = kept_for(by_method[method])
                decompose_leftovers(program, kept_whole, but=is_wanted_later)
                manager._edge_programs[method] = with_float_biases(program)
        return manager

    return to_backend


def _tagged(program: ExportedProgram) -> None:
    """Prepare a program that delegates are about to be cut out of."""
    delegate_cuts.unwritten(program.graph_module)


def _tosa_step(stock: Preprocess) -> Preprocess:
    """Wrap the step that all backends share: from the delegate's program to its TOSA graph."""

    def preprocess(
        edge_program: ExportedProgram, *args: Any, **kwargs: Any
    ) -> PreprocessResult:
        record = current_lowering()
        if record.manager is None:
            result = stock(edge_program, *args, **kwargs)
            record.flatbuffers.append(bytes(result.processed_bytes))
            return result
        check = fits(edge_program)
        result = stock(edge_program, *args, **kwargs)
        try:
            check(result.processed_bytes)
        except InvariantError as error:
            breach(error)
        record.flatbuffers.append(bytes(result.processed_bytes))
        return result

    return preprocess


def _pipeline(stock: Callable[..., GraphModule]) -> Callable[..., GraphModule]:
    """Wrap the pipeline of passes over a delegate's graph."""

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
