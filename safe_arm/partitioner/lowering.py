"""One lowering of one delegate, on a copy: the backend's result, or the failure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from safe_arm._compat.dynamic_sizes import environment_of, sizes_kept
from safe_arm._compat.extraction import TagOf, backend_of, copied, delegate_programs
from safe_arm._compat.marker import names_in, unmarked
from safe_arm._compat.upstream import (
    BackendDetails,
    CompileSpec,
    DelegationSpec,
    PreprocessResult,
)
from safe_arm.acceleration import switch
from safe_arm.acceleration.delegate_cuts import unwritten
from safe_arm.acceleration.signatures import cache_tables
from safe_arm.core.device_cost import VelaSummary
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.failure import Failure, failure_of
from safe_arm.core.lowering_record import (
    Lowering,
    Note,
    Shapes,
    current_lowering,
    lowering,
)
from safe_arm.core.origins import origin
from safe_arm.partitioner.fingerprint import fingerprint
from safe_arm.partitioner.repeated_messages import each_message_once
from safe_arm.passes.manager import manager_of
from safe_arm.verification.delegate import Delegate, Snapshot
from safe_arm.verification.known_shapes import remember


@dataclass(frozen=True)
class Cut:
    """One delegate cut out of a copy of its program; lowering uses it up.

    Attributes:
        tag: the tag of the delegate.
        program: the program that the backend will be given.
        spec: the backend and its compile specs.
        key: the fingerprint of program and specs.
        names: for each node of the program, the node of the user's graph it comes from.
    """

    tag: str
    program: ExportedProgram
    spec: DelegationSpec
    key: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Lowered:
    """The result of a lowering.

    Attributes:
        result: the backend's result.
        printed: the output of its tools.
        flatbuffer: the TOSA graph, as shipped or as handed to the target's compiler.
        origins: for nodes of the final graph, the node of the user's graph they come from.
        shapes: for each region of the flatbuffer, the shapes of the nodes of its final graph.
        notes: where corrections made a difference.
        vela: the summary of each run of Vela; nothing without Vela.
        names: names of the nodes of the program that was lowered.
    """

    result: PreprocessResult
    printed: str
    flatbuffer: bytes
    origins: Mapping[str, str]
    shapes: list[Shapes]
    notes: tuple[Note, ...]
    vela: tuple[VelaSummary, ...]
    names: tuple[str, ...]

    @property
    def cycles(self) -> int:
        """The cycles of an inference, as Vela estimates them; 0 without Vela."""
        return sum(summary.cycles for summary in self.vela)

    def notes_for(self, cut: Cut) -> list[Note]:
        """Return the notes with the node names of a delegate that is this one's double."""
        own = dict(zip(self.names, cut.names, strict=True))
        return [(name, issue, own.get(node, node)) for name, issue, node in self.notes]

    def delegate(
        self,
        cut: Cut,
        snapshot: Snapshot,
        state: Mapping[str, Tensor],
        float_borders: bool,
    ) -> Delegate:
        """Return a delegate that was lowered to this, or whose double was, as the proof takes it."""
        own = dict(zip(self.names, cut.names, strict=True))
        origins = {name: own.get(node, node) for name, node in self.origins.items()}
        return Delegate(
            self.flatbuffer, snapshot, state, origins, float_borders, self.shapes
        )


def cut_out(
    program: ExportedProgram,
    state: Mapping[str, Tensor],
    specs: Mapping[str, DelegationSpec],
    tags: TagOf,
) -> list[Cut]:
    """Cut every delegate out of a copy of a tagged program.

    Args:
        program: the tagged program; it is not changed.
        state: its parameters and buffers, with real values.
        specs: for each tag, what the delegate is compiled with.
        tags: gives the tag of an operator.
    """
    cuts = []
    copy_of = copied(program, state, tags)
    cache_tables(copy_of)
    unwritten(copy_of.graph_module)
    for tag, delegate in delegate_programs(copy_of, specs):
        spec = specs[tag]
        key = fingerprint(delegate, spec.compile_specs)
        names = tuple(map(origin, delegate.graph.nodes))
        cuts.append(Cut(tag, delegate, spec, key, names))
    return cuts


def preprocess(
    backend: type[BackendDetails],
    program: ExportedProgram,
    compile_specs: list[CompileSpec],
) -> PreprocessResult:
    """Let a backend lower a delegate with our pass manager; one that is not ours is stock's.

    Raises:
        Exception: the first error for which the delegate must not ship, if the backend raises none.
    """
    names = names_in(compile_specs)
    if names is None:
        return backend.preprocess(program, compile_specs)
    ours = replace(current_lowering(), manager=manager_of(names), breaches=[])
    with lowering(ours) as record, switch.running_passes():
        result = backend.preprocess(program, unmarked(compile_specs))
    if record.breaches:
        raise record.breaches[0]
    return result


def lower(
    program: ExportedProgram,
    spec: DelegationSpec,
    *,
    time_limit: float,
    logged: set[tuple[str, str]],
) -> Lowered | Failure:
    """Lower one delegate's program as ExecuTorch will.

    Args:
        program: the delegate; its graph is used up, its tensors are not written to.
        spec: the backend and its compile specs.
        time_limit: seconds one run of Vela or model-converter may take.
        logged: what ExecuTorch has logged in this session and need not again.
    """
    # Passes may write to parameters; these are the user's.
    program._state_dict = _copies(program.state_dict)
    program._constants = _copies(program.constants)
    names = tuple(map(origin, program.graph.nodes))
    asked = Lowering(time_limit=time_limit)
    with (
        lowering(asked) as record,
        each_message_once(logged),
        sizes_kept(environment_of(program.graph_module)),
    ):
        backend = backend_of(spec.backend_id)
        result = attempted(preprocess, backend, program, spec.compile_specs)
    if isinstance(result, Caught):
        return failure_of(result, record.origins)
    flatbuffer = b"".join(record.flatbuffers[-1:])
    remember(flatbuffer, record.shapes)
    return Lowered(
        result,
        "".join(record.printed),
        flatbuffer,
        record.origins,
        record.shapes,
        tuple(record.notes),
        tuple(record.summaries),
        names,
    )


def _copies(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copy(value) for name, value in values.items()}


def _copy(value: Any) -> Any:
    """Copy a tensor, one computed with gradients on included, which ``deepcopy`` refuses."""
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)
    twin = value.detach().clone()
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(twin, value.requires_grad)
    return twin
