"""Where safe_arm reaches into the Arm backend, and how it stays out of everybody else's way.

These places are wrapped once, on first use: the backends' ``preprocess`` and the copy made for it, the step of
``TOSABackend`` through which all of them come by their TOSA flatbuffer, the name
``ArmPassManager`` in ``executorch.backends.arm._passes`` (the backend imports it afresh for each delegate),
``CheckProperQuantization.is_node_supported``, the calls of the external tools (tools.py), where a lowering
begins (entry_points.py) and what makes traces cheap (decompositions.py, fake_values.py, late_code.py,
provenance.py, signatures.py). Each wrapper asks a context variable, or looks for our marker in the compile specs, and
behaves exactly as stock without. A context variable belongs to one thread of control, so a stock export and a safe
one can run side by side. ``uninstall`` puts everything back.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch.fx import GraphModule, Node

from safe_arm._compat import compilers, deep_graphs
from safe_arm._compat.upstream import (
    ArmPassManager,
    CheckProperQuantization,
    CompileSpec,
    EthosUBackend,
    TOSABackend,
    VgfBackend,
)
from safe_arm.acceleration import decompositions, entry_points, fake_values, late_code, provenance, signatures
from safe_arm.core.origins import ORIGIN_KEY

#: Key of the compile spec that marks a delegate as ours; its value names the corrections to apply.
MARKER = "safe_arm"

_manager: ContextVar[type[ArmPassManager] | None] = ContextVar("safe_arm_manager", default=None)
_accepted: ContextVar[frozenset[Node]] = ContextVar("safe_arm_accepted", default=frozenset())
_found: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_names: ContextVar[dict[str, str] | None] = ContextVar("safe_arm_names", default=None)
_shapes: ContextVar[list[dict[str, torch.Size]] | None] = ContextVar("safe_arm_shapes", default=None)
_flatbuffers: ContextVar[list[bytes] | None] = ContextVar("safe_arm_flatbuffers", default=None)
_breaches: ContextVar[list[Exception] | None] = ContextVar("safe_arm_breaches", default=None)
_lock = threading.Lock()
_undo: list[Callable[[], None]] = []


def marker(names: Sequence[str]) -> CompileSpec:
    """Return the compile spec that carries the names of the corrections to a delegate's lowering."""
    return CompileSpec(MARKER, ",".join(names).encode())


class Hooks(Protocol):
    """What the wrappers ask the rest of safe_arm."""

    def manager_of(self, names: tuple[str, ...]) -> type[ArmPassManager]:
        """Return the pass manager class for the names of the corrections that a marker carries."""

    def ready(self, program: Any, compile_specs: list[CompileSpec]) -> Any | None:
        """Return what a trial made of a program, None if it has to be lowered."""

    def cut(self, program: Any) -> Any:
        """Return the program to go on with after our delegates were cut out of one."""


@contextmanager
def accepting(nodes: frozenset[Node]) -> Iterator[None]:
    """Let the INT profile's quantisation check accept these nodes, in this thread, while the block runs."""
    token = _accepted.set(nodes)
    try:
        yield
    finally:
        _accepted.reset(token)


@contextmanager
def recording(names: dict[str, str], shapes: list[dict[str, torch.Size]] | None = None) -> Iterator[None]:
    """Collect, in this thread, the original node of every node that our pass managers finish with.

    Args:
        names: gets, by name of the node, that of its original.
        shapes: gets, for each graph (the main one, then those of its control flow), the shape of each node by name.
    """
    token, shapes_token = _names.set(names), _shapes.set(shapes)
    try:
        yield
    finally:
        _names.reset(token)
        _shapes.reset(shapes_token)


@contextmanager
def capturing(flatbuffers: list[bytes]) -> Iterator[None]:
    """Collect, in this thread, every TOSA flatbuffer that a backend hands to its compiler or ships."""
    token = _flatbuffers.set(flatbuffers)
    try:
        yield
    finally:
        _flatbuffers.reset(token)


def breach(error: Exception) -> None:
    """Note that what is being lowered in this thread must not become a delegate; raise at once if none is.

    Args:
        error: raised when the backend is done with the delegate, if it does not raise by itself.
    """
    breaches = _breaches.get()
    if breaches is None:
        raise error
    breaches.append(error)


def record(graph_module: GraphModule) -> None:
    """Note where the nodes of a finished graph come from, if somebody is ``recording``."""
    names = _names.get()
    if names is not None:
        names.update({node.name: node.meta[ORIGIN_KEY] for node in graph_module.graph.nodes if ORIGIN_KEY in node.meta})
    if (shapes := _shapes.get()) is not None:
        values = ((node.name, node.meta.get("val")) for node in graph_module.graph.nodes)
        shapes.append({name: value.shape for name, value in values if isinstance(value, torch.Tensor)})


def install(hooks: Hooks) -> None:
    """Wrap the seams; a second call does nothing."""
    with _lock:
        if _undo:
            return
        for backend in (TOSABackend, VgfBackend, EthosUBackend):
            _wrap_preprocess(backend, hooks)
            _wrap_copy(backend, hooks)
        _wrap_tosa_step()
        _wrap_manager_lookup()
        _wrap_quantization_check()
        _undo.extend(compilers.install())
        _undo.append(entry_points.install(_is_ours, _is_marked, hooks.cut))
        _undo.extend(part.install() for part in (decompositions, fake_values, late_code, provenance, signatures))


def uninstall() -> None:
    """Put every wrapped seam back as ExecuTorch made it."""
    with _lock:
        while _undo:
            _undo.pop()()


def _marked(compile_specs: list[CompileSpec]) -> tuple[str, ...] | None:
    """Return the names in our marker, None for a delegate that is not ours."""
    values = [bytes(spec.value).decode() for spec in compile_specs if spec.key == MARKER]
    return tuple(filter(None, values[0].split(","))) if values else None


def _names_of(partitioner: Any) -> tuple[str, ...] | None:
    spec = getattr(partitioner, "delegation_spec", None)
    return None if spec is None else _marked(spec.compile_specs)


def _is_marked(partitioner: Any) -> bool:
    """Whether a partitioner's delegates are ours."""
    return _names_of(partitioner) is not None


def _is_ours(partitioner: Any) -> bool:
    """Whether a partitioner's delegates are ours and their provenance need not be as torch records it."""
    names = _names_of(partitioner)
    return names is not None and provenance.KEEP not in names


def _wrap_preprocess(backend: Any, hooks: Hooks) -> None:
    stock = backend.__dict__["preprocess"]
    preprocess = stock.__func__

    @functools.wraps(preprocess)
    def wrapped(edge_program: Any, compile_specs: list[CompileSpec]) -> Any:
        names = _marked(compile_specs)
        if names is None:
            return preprocess(edge_program, compile_specs)
        result = _found.pop(edge_program, None) or hooks.ready(edge_program, compile_specs)
        if result is not None:
            return result
        breaches: list[Exception] = []
        token, breaches_token = _manager.set(hooks.manager_of(names)), _breaches.set(breaches)
        try:
            nodes = len(edge_program.graph.nodes)
            with fake_values.remembered(), late_code.late(), signatures.cached(), deep_graphs.deep(nodes):
                result = preprocess(edge_program, [spec for spec in compile_specs if spec.key != MARKER])
        finally:
            _manager.reset(token)
            _breaches.reset(breaches_token)
        if breaches:
            raise breaches[0]
        return result

    backend.preprocess = staticmethod(wrapped)
    _undo.append(lambda: setattr(backend, "preprocess", stock))


def _wrap_copy(backend: Any, hooks: Hooks) -> None:
    """Spare the deep copy of a program that will not be lowered again (1.5 on)."""
    stock = getattr(backend, "copy_exported_program_for_preprocess", None)
    if stock is None:
        return

    def wrapped(cls: Any, edge_program: Any, compile_specs: list[CompileSpec]) -> Any:
        if _marked(compile_specs) is None or (result := hooks.ready(edge_program, compile_specs)) is None:
            return stock(edge_program, compile_specs)
        _found[edge_program] = result
        return edge_program

    backend.copy_exported_program_for_preprocess = classmethod(wrapped)
    _undo.append(lambda: delattr(backend, "copy_exported_program_for_preprocess"))


def _wrap_tosa_step() -> None:
    """Note the flatbuffer where ``VgfBackend`` and ``EthosUBackend`` come by it too."""
    stock = TOSABackend.__dict__["_preprocess"]
    preprocess = stock.__func__

    @functools.wraps(preprocess)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = preprocess(*args, **kwargs)
        if (flatbuffers := _flatbuffers.get()) is not None:
            flatbuffers.append(bytes(result.processed_bytes))
        return result

    TOSABackend._preprocess = staticmethod(wrapped)
    _undo.append(lambda: setattr(TOSABackend, "_preprocess", stock))


def _wrap_manager_lookup() -> None:
    package = sys.modules["executorch.backends.arm._passes"]
    stock_type = package.__class__

    class ArmPassesPackage(types.ModuleType):
        """The ``_passes`` package, whose ``ArmPassManager`` is ours while one of our delegates is lowered."""

        @property
        def ArmPassManager(self) -> type[ArmPassManager]:  # noqa: N802
            return _manager.get() or self.__dict__["ArmPassManager"]

        @ArmPassManager.setter
        def ArmPassManager(self, value: type[ArmPassManager]) -> None:  # noqa: N802
            self.__dict__["ArmPassManager"] = value

    package.__class__ = ArmPassesPackage
    _undo.append(lambda: setattr(package, "__class__", stock_type))


def _wrap_quantization_check() -> None:
    stock = CheckProperQuantization.is_node_supported

    @functools.wraps(stock)
    def is_node_supported(self: CheckProperQuantization, submodules: Any, node: Node) -> bool:
        return node in _accepted.get() or stock(self, submodules, node)

    CheckProperQuantization.is_node_supported = is_node_supported
    _undo.append(lambda: setattr(CheckProperQuantization, "is_node_supported", stock))
