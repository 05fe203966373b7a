"""Write a bundle beside a program: inputs with expected outputs, the TOSA graphs of its delegates, and the manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from executorch.exir import ExecutorchProgramManager
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm._compat.pte import (
    MethodCut,
    PteDelegate,
    PTEFile,
    UncuttableError,
    constants_of,
    delegates_of,
    initial_states_of,
    named_data_of,
    read_program,
)
from safe_arm._compat.pte_runtime import bundled
from safe_arm.bundle.bundle_files import BundleFiles, archived
from safe_arm.bundle.cases import MethodCases, make_cases
from safe_arm.bundle.hashes import tensor_bytes
from safe_arm.bundle.manifest import (
    BundledCase,
    BundledMethod,
    Digest,
    Manifest,
    ShippedDelegate,
)
from safe_arm.bundle.running import RunsCall, calls_of_graphs
from safe_arm.core.island import is_dequantize
from safe_arm.core.programs import held_names
from safe_arm.core.record import Report
from safe_arm.core.whole_file import replace_file
from safe_arm.core.written import module_path
from safe_arm.partitioner.lowering import Cut, Lowered
from safe_arm.verification.delegate import Runner
from safe_arm.verification.model_process import ModelProcess
from safe_arm.verification.taps import main_block

#: Seconds that one run of the reference model may take.
TIME_LIMIT = 600.0


@dataclass(frozen=True)
class ShippedGraph:
    """A delegate as its trial lowered it.

    Attributes:
        method, tag: whose it is, and what reports call it.
        data: what the backend made of it.
        tosa: the TOSA graph that was made from.
        takes: which arguments of its call the graph reads.
    """

    method: str
    tag: str
    data: bytes
    tosa: bytes
    takes: tuple[int, ...]


class ShippedGraphs:
    """Collects what a partitioner ships; to be put into its attribute ``during_shipping``.

    Attributes:
        graphs: the delegates of all its methods.
    """

    def __init__(self) -> None:
        self.graphs: list[ShippedGraph] = []

    def __call__(self, method: str, shipped: Sequence[tuple[Cut, Lowered]]) -> None:
        """Take the delegates of one method, instead of those it had before."""
        self.graphs = [graph for graph in self.graphs if graph.method != method]
        for cut, lowered in shipped:
            tosa, data = lowered.flatbuffer, lowered.result.processed_bytes
            self.graphs.append(
                ShippedGraph(method, cut.tag, data, tosa, _taken(cut, tosa))
            )

    def of(self, delegate: PteDelegate) -> ShippedGraph | None:
        """Return what a delegate of a program file was made from."""
        same = (
            g
            for g in self.graphs
            if g.method == delegate.method and g.data == delegate.data
        )
        return next(same, None)


def _taken(cut: Cut, tosa: bytes) -> tuple[int, ...]:
    """Return which arguments of a delegate's call its graph reads: one that gave its shape alone is gone."""
    block = main_block(tosa)
    names = list(cut.program.graph_signature.user_inputs)
    live = [block.Inputs(n).decode() for n in range(block.InputsLength())]
    return (
        tuple(range(len(names)))
        if len(live) == len(names)
        else tuple(names.index(name) for name in live)
    )


def write_bundle(
    pte: Path,
    lowered: ExecutorchProgramManager,
    programs: Mapping[str, ExportedProgram],
    shipped: ShippedGraphs,
    report: Report,
    samples: Mapping[str, Sequence[Sequence[Tensor]]] | None = None,
) -> Manifest:
    """Write, beside a program's file, the same with inputs and expected outputs, its TOSA graphs and the manifest.

    Args:
        pte: the file of the program, written already.
        lowered: what ``to_executorch`` returned.
        programs: by method, the quantised program before it was lowered; methods left out have no cases.
        shipped: what the partitioner's ``during_shipping`` collected.
        report: the partitioner's report.
        samples: by method, inputs to bundle besides our own.

    Returns:
        The manifest as written.

    Raises:
        SafeArmError: the program cannot be run here, nor can its quantised graph.
        OSError: a file cannot be written.
    """
    files, data = BundleFiles.beside(pte), pte.read_bytes()
    file = read_program(data, str(pte))
    found = [(delegate, shipped.of(delegate)) for delegate in delegates_of(file)]
    delegates = [_described(delegate, graph) for delegate, graph in found]
    pairs = zip(delegates, found, strict=True)
    graphs = {
        each.tosa.name: graph.tosa
        for each, (_, graph) in pairs
        if each.tosa is not None and graph is not None
    }
    calls = {method: _calls(lowered.exported_program(method)) for method in programs}
    with ModelProcess(TIME_LIMIT) as runner:
        methods = {
            method: make_cases(
                program,
                *_opened(file, method, calls[method], found, runner),
                (samples or {}).get(method, ()),
                sum(
                    verdict.macs
                    for verdict in report.verdicts
                    if verdict.method == method
                ),
            )
            for method, program in programs.items()
        }
    cases = {
        name: [(case.stimulus.inputs, case.outputs) for case in each.cases]
        for name, each in methods.items()
    }
    bundle, archive = bundled(pte, cases), archived(graphs) if graphs else None
    tensors = _named_tensors(lowered)
    named = {f"named data {key}": raw for key, raw in named_data_of(file).items()}
    named |= {
        f"initial state {number}": raw
        for number, raw in enumerate(initial_states_of(file))
    }
    manifest = Manifest(
        Digest.of(pte.name, data),
        Digest.of(files.bundle.name, bundle),
        None if archive is None else Digest.of(files.graphs.name, archive),
        tuple(delegates),
        tuple(
            _weight(index, raw, tensors) for index, raw in constants_of(file).items()
        ),
        tuple(Digest.of(name, raw) for name, raw in named.items()),
        tuple(_method(name, calls[name], each) for name, each in methods.items()),
        asdict(report.subject),
        tuple(asdict(each) for each in report.applied),
        report.verifications,
        report.float_comparisons,
    )
    replace_file(files.bundle, bundle)
    if archive is None:
        files.graphs.unlink(missing_ok=True)  # Of an earlier program.
    else:
        replace_file(files.graphs, archive)
    replace_file(files.manifest, manifest.rendered())
    return manifest


def _calls(program: ExportedProgram) -> tuple[int, ...]:
    """Return how many inputs each call of a delegate takes, in the order of the graph."""
    calls = (
        n
        for n in program.graph.nodes
        if getattr(n.target, "__name__", "") == "executorch_call_delegate"
    )
    return tuple(len(node.args) - 1 for node in calls)


def _opened(
    file: PTEFile,
    method: str,
    calls: Sequence[int],
    found: Sequence[tuple[PteDelegate, ShippedGraph | None]],
    runner: Runner,
) -> tuple[MethodCut | str, RunsCall]:
    """Return a method cut at its Arm delegates, or why it cannot be, and what runs them."""
    own = [(delegate, graph) for delegate, graph in found if delegate.method == method]
    run_call = calls_of_graphs(
        {each.index: (graph.tosa, graph.takes) for each, graph in own if graph}, runner
    )
    if any(delegate.is_arm and graph is None for delegate, graph in own):
        return "a delegate was not lowered on trial", run_call
    try:
        return MethodCut(file, method, calls), run_call
    except UncuttableError as error:
        return str(error), run_call


def _described(delegate: PteDelegate, graph: ShippedGraph | None) -> ShippedDelegate:
    tag = f"{delegate.method}:{graph.tag if graph else delegate.index}"
    data = Digest.of(tag, delegate.data)
    # One of TOSA's own is the graph.
    tosa = (
        Digest.of(f"{tag.replace(':', '.')}.tosa", graph.tosa)
        if graph and graph.tosa != delegate.data
        else None
    )
    return ShippedDelegate(
        delegate.method,
        delegate.index,
        delegate.backend,
        data,
        tosa,
        graph.takes if graph else (),
    )


def _named_tensors(lowered: ExecutorchProgramManager) -> dict[str, str]:
    """Return, by the hash of its bytes, what each parameter, buffer and constant outside delegates is called."""
    named: dict[str, str] = {}
    for method in sorted(lowered.methods):
        program = lowered.exported_program(method)
        state, held = {**program.constants, **program.state_dict}, held_names(program)
        for node in program.graph.find_nodes(op="placeholder"):
            value = state.get(held.get(node.name, ""))
            if isinstance(value, Tensor):
                path = next(filter(None, map(module_path, _readers(node))), "")
                name = held[node.name] + f" of {path}" * bool(path)
                named.setdefault(Digest.of("", tensor_bytes(value)).sha256, name)
    return named


def _readers(node: Node) -> Iterator[Node]:
    """Yield what reads a value, directly or dequantised."""
    for user in node.users:
        yield from user.users if is_dequantize(user) else ()
        yield user


def _weight(index: int, raw: bytes, tensors: Mapping[str, str]) -> Digest:
    digest = Digest.of("", raw)
    return Digest(
        tensors.get(digest.sha256, f"constant {index}"), digest.size, digest.sha256
    )


def _method(name: str, calls: tuple[int, ...], method: MethodCases) -> BundledMethod:
    cases = tuple(
        BundledCase(
            case.stimulus.name,
            case.seed,
            tuple(
                Digest.of(f"input {n}", tensor_bytes(each))
                for n, each in enumerate(case.stimulus.inputs)
            ),
            tuple(
                Digest.of(f"expected output {n}", tensor_bytes(each))
                for n, each in enumerate(case.outputs)
            ),
        )
        for case in method.cases
    )
    return BundledMethod(name, calls, method.computed_by, method.bounds, cases)
