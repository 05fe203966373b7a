"""Which engine took each node of a lowered program, and what it costs on this CPU where that can be measured."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from executorch.exir import EdgeProgramManager
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.extraction import with_graph
from safe_arm._compat.loading import LOADABLE, delegate_name, delegates
from safe_arm.core.errors import UsageError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import call_functions, op_name
from safe_arm.core.origins import DECOMPOSED_FROM
from safe_arm.core.record import PORTABLE, DelegateCost, Report
from safe_arm.core.sizes import example_size

#: How often each of the two is run, and the seconds after which no further run is begun.
RUNS, SECONDS = 50, 1.0


@dataclass(frozen=True)
class NodeEngine:
    """Where one operator runs.

    Attributes:
        name: the node's name, as in ``Report.verdicts``.
        op: its operator.
        engine: the id of the backend, ``"portable"`` for ExecuTorch's kernels.
        delegate: the name of the delegate it is in, as in ``Report.delegates``; empty for none.
    """

    name: str
    op: str
    engine: str
    delegate: str


@dataclass(frozen=True)
class Engines:
    """The engine of every node, and the cost of every delegate.

    Attributes:
        nodes: one record for each operator, in graph order; what a delegate holds comes after the nodes in none.
        delegates: one record for each delegate, in graph order.
    """

    nodes: tuple[NodeEngine, ...]
    delegates: tuple[DelegateCost, ...]

    def engine_of(self, name: str) -> str:
        """Return the engine of a node; empty for one that is no more, such as a bias's dequantise node."""
        return next((node.engine for node in self.nodes if node.name == name), "")

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON's own types."""
        return {
            "nodes": [asdict(n) for n in self.nodes],
            "delegates": [asdict(d) for d in self.delegates],
        }


def engines(
    manager: EdgeProgramManager, *, method: str = "forward", measure: bool = True
) -> Engines:
    """Say which engine took each node of a lowered program, and measure what runs on this CPU.

    A delegate of XNNPACK is run in the runtime of the ExecuTorch wheel, alone, on random inputs, and so is the subgraph
    it was made from, lowered without a partitioner. Both take turns. A delegate of Arm's is not for this CPU.

    Args:
        manager: what ``to_edge_transform_and_lower`` returned.
        method: the method of the program.
        measure: False only says where the nodes are.

    Raises:
        UsageError: it is not a lowered program, or has no such method.
    """
    if not isinstance(manager, EdgeProgramManager):
        wanted = "what to_edge_transform_and_lower returned, an EdgeProgramManager"
        raise UsageError(f"engines() takes {wanted}, not {type(manager).__name__}")
    if method not in manager.methods:
        raise UsageError(
            f"the program has no method {method!r}; it has {', '.join(sorted(manager.methods))}"
        )
    graph_module = manager.exported_program(method).graph_module
    found = [
        (delegate_name(name, module), module)
        for name, module in delegates(graph_module)
    ]
    nodes = _nodes(graph_module, PORTABLE, "")
    for name, module in found:
        nodes += _nodes(module.original_module.graph_module, module.backend_id, name)
    return Engines(
        tuple(nodes), tuple(_cost(name, module, measure) for name, module in found)
    )


def with_engines(
    report: Report,
    manager: EdgeProgramManager,
    *,
    method: str = "forward",
    measure: bool = True,
) -> Report:
    """Return a report that also says which engine took each node, and at what cost on this CPU.

    Args:
        report: the partitioner's, of this program.
        manager: the lowered program.
        method: as ``engines`` takes it; of a report about several methods, all are looked at.
        measure: as ``engines`` takes it.

    Raises:
        UsageError: as ``engines``.
    """
    several = len(report.methods) > 1
    asked = report.methods if several else (method,)
    found = {name: engines(manager, method=name, measure=measure) for name in asked}
    of = {
        (name, node.name): node.engine
        for name, own in found.items()
        for node in own.nodes
    }
    verdicts = tuple(
        replace(
            verdict,
            engine=of.get((verdict.method if several else method, verdict.name), ""),
        )
        for verdict in report.verdicts
    )
    costs = tuple(
        replace(cost, delegate=f"{name}:{cost.delegate}") if several else cost
        for name, own in found.items()
        for cost in own.delegates
    )
    return replace(report, verdicts=verdicts, engines=costs)


def _nodes(graph_module: GraphModule, engine: str, delegate: str) -> list[NodeEngine]:
    operators = [
        node
        for node in call_functions(graph_module)
        if op_name(node) and not _calls_delegate(node)
    ]
    names = [node.meta.get(DECOMPOSED_FROM, node.name) for node in operators]
    return [
        NodeEngine(name, op_name(node), engine, delegate)
        for name, node in zip(names, operators, strict=True)
    ]


def _calls_delegate(node: Node) -> bool:
    return "executorch_call_delegate" in str(node.target)


def _cost(name: str, module: LoweredBackendModule, measure: bool) -> DelegateCost:
    engine = module.backend_id
    if engine not in LOADABLE:
        return DelegateCost(name, engine, None, None, "runs on the accelerator")
    if not measure:
        return DelegateCost(name, engine, None, None, "not asked for")
    medians = attempted(_beside_portable, module)
    if isinstance(medians, Caught):
        message = " ".join(str(medians.causes[-1]).split())[:200]
        return DelegateCost(name, engine, None, None, f"does not run here: {message}")
    ours, portable = medians
    return DelegateCost(name, engine, ours, portable)


def _beside_portable(module: LoweredBackendModule) -> list[float]:
    """Return the median time of a delegate, and of its operators on the portable kernels."""
    program = module.original_module
    inputs = random_inputs(program)
    # Lowering puts other operators into the graph it is given.
    twin = with_graph(program, copy.deepcopy(program.graph_module), program.state_dict)
    alone = EdgeProgramManager({"forward": twin}).to_executorch().buffer
    return _medians([_runner(buffer, inputs) for buffer in (module.buffer(), alone)])


def random_inputs(program: ExportedProgram) -> list[Tensor]:
    """Make random inputs of a delegate's subgraph, dynamic sizes those of the example; integers are small."""
    generator = torch.Generator().manual_seed(0)
    names = set(program.graph_signature.user_inputs)
    inputs = []
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name in names:
            shape, dtype = (
                [example_size(size) for size in node.meta["val"].shape],
                node.meta["val"].dtype,
            )
            floats = torch.randn(shape, generator=generator)
            inputs.append(
                floats.to(dtype) if dtype.is_floating_point else (floats * 8).to(dtype)
            )
    return inputs


def _runner(buffer: bytes, inputs: Sequence[Tensor]) -> Callable[[], object]:
    """Load a program and return what runs it once; it holds on to the buffer, as the runtime does not."""
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(buffer)
    loaded = program.load_method("forward")
    return lambda: (loaded.execute(inputs), program, buffer)


def _medians(runners: Sequence[Callable[[], object]]) -> list[float]:
    """Run each in turn, after a run that does not count, and return each one's median in microseconds."""
    taken: list[list[float]] = [[] for _ in runners]
    for run in runners:
        run()
    end = time.perf_counter() + SECONDS
    while len(taken[0]) < RUNS and (not taken[0] or time.perf_counter() < end):
        for run, times in zip(runners, taken, strict=True):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1e6)
    return [statistics.median(times) for times in taken]
