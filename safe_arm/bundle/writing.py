"""Write a bundle next to a program: inputs with expected outputs, the TOSA graphs of its delegates, the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from safe_arm.bundle.cases import MethodCases, make_cases
from safe_arm.bundle.manifest import (
    BundledCase,
    BundledMethod,
    BundleFiles,
    Digest,
    Digests,
    Manifest,
    ShippedDelegate,
    archived,
)
from safe_arm.bundle.running import RunsCall, calls_of_graphs
from safe_arm.core.island import is_dequantize
from safe_arm.core.programs import held_names
from safe_arm.core.record import Report
from safe_arm.core.whole_file import replace_file
from safe_arm.core.written import module_path
from safe_arm.partitioner.listener import Listener
from safe_arm.partitioner.lowering import Cut, Lowered
from safe_arm.repro.source_code import bytes_of
from safe_arm.verification.delegate import Runner
from safe_arm.verification.model_process import ModelProcess
from safe_arm.verification.taps import main_block

#: Seconds that one run of the reference model may take.
TIME_LIMIT = 600.0


@dataclass(frozen=True)
class ShippedGraph:
    """A delegate as its trial lowered it.

    Attributes:
        method: the name of its method.
        tag: its name in reports.
        data: the delegate's bytes, as the backend made them.
        tosa: the TOSA graph that the bytes were made from.
        takes: the numbers of the call's arguments that the graph reads.
    """

    method: str
    tag: str
    data: bytes
    tosa: bytes
    takes: tuple[int, ...]


class ShippedGraphs(Listener):
    """A listener that collects the delegates that a partitioner ships.

    Attributes:
        graphs: the delegates of all its methods.
    """

    def __init__(self) -> None:
        self.graphs: list[ShippedGraph] = []

    def shipped(self, method: str, delegates: Sequence[tuple[Cut, Lowered]]) -> None:
        """Take the delegates of one method, in place of earlier ones."""
        self.graphs = [graph for graph in self.graphs if graph.method != method]
        for cut, lowered in delegates:
            tosa = lowered.flatbuffer
            data = lowered.result.processed_bytes
            takes = _taken(cut, tosa)
            self.graphs.append(ShippedGraph(method, cut.tag, data, tosa, takes))

    def of(self, delegate: PteDelegate) -> ShippedGraph | None:
        """Return the graph that a delegate of a program file was made from."""
        for graph in self.graphs:
            if graph.method == delegate.method and graph.data == delegate.data:
                return graph
        return None


def _taken(cut: Cut, tosa: bytes) -> tuple[int, ...]:
    """Return which arguments of a delegate's call its graph reads; an argument that gave only its shape is gone."""
    block = main_block(tosa)
    names = list(cut.program.graph_signature.user_inputs)
    number = block.InputsLength()
    if number == len(names):
        return tuple(range(number))
    inputs = map(block.Inputs, range(number))
    return tuple([names.index(name.decode()) for name in inputs])


#: The delegates of a program file, each with the graph that it was made from, if that is known.
DelegatesWithGraphs = Sequence[tuple[PteDelegate, ShippedGraph | None]]


def write_bundle(
    pte: Path,
    lowered: ExecutorchProgramManager,
    programs: Mapping[str, ExportedProgram],
    shipped: ShippedGraphs,
    report: Report,
    samples: Mapping[str, Sequence[Sequence[Tensor]]] | None = None,
) -> Manifest:
    """Write the bundle of a program next to it: inputs with expected outputs, its TOSA graphs and the manifest.

    Args:
        pte: the program's file, already written.
        lowered: the result of ``to_executorch``.
        programs: each method's quantised program before it was lowered; methods left out have no cases.
        shipped: the listener that collected the partitioner's delegates.
        report: the partitioner's report.
        samples: for each method, inputs of your own to bundle as well.

    Returns:
        The manifest as written.

    Raises:
        SafeArmError: neither the program nor its quantised graph can be run on this machine.
        OSError: a file cannot be written.
    """
    files = BundleFiles.beside(pte)
    data = pte.read_bytes()
    file = read_program(data, str(pte))
    delegates = [(delegate, shipped.of(delegate)) for delegate in delegates_of(file)]
    calls = {method: _calls(lowered.exported_program(method)) for method in programs}
    methods = {}
    with ModelProcess(TIME_LIMIT) as runner:
        for name, program in programs.items():
            cut, run_call = _opened(file, name, calls[name], delegates, runner)
            macs = sum(v.macs for v in report.verdicts if v.method == name)
            user_samples = (samples or {}).get(name, ())
            methods[name] = make_cases(program, cut, run_call, user_samples, macs)
    cases = {}
    for name, method in methods.items():
        cases[name] = [(case.stimulus.inputs, case.outputs) for case in method.cases]
    bundle = bundled(pte, cases)
    described, archive = _described_all(delegates)
    data_by_key = named_data_of(file).items()
    named_data = [Digest.of(f"named data {key}", data) for key, data in data_by_key]
    manifest = Manifest(
        program=Digest.of(pte.name, data),
        bundle=Digest.of(files.bundle.name, bundle),
        graphs=Digest.of(files.graphs.name, archive) if archive else None,
        delegates=tuple(described),
        weights=_weights(file, _named_tensors(lowered)),
        named_data=(*named_data, *_numbered("initial state", initial_states_of(file))),
        methods=tuple([_method(name, calls[name], methods[name]) for name in methods]),
        subject=asdict(report.subject),
        applied=tuple(map(asdict, report.applied)),
        verifications=report.verifications,
        float_comparisons=report.float_comparisons,
    )
    _replace(files, bundle, archive, manifest)
    return manifest


def _replace(
    files: BundleFiles, bundle: bytes, archive: bytes | None, manifest: Manifest
) -> None:
    replace_file(files.bundle, bundle)
    if archive is None:
        files.graphs.unlink(missing_ok=True)  # An earlier program may have left one.
    else:
        replace_file(files.graphs, archive)
    replace_file(files.manifest, manifest.rendered())


def _calls(program: ExportedProgram) -> tuple[int, ...]:
    """Return how many inputs each call of a delegate takes, in the order of the graph."""
    numbers = []
    for node in program.graph.nodes:
        if getattr(node.target, "__name__", "") == "executorch_call_delegate":
            numbers.append(len(node.args) - 1)
    return tuple(numbers)


def _opened(
    file: PTEFile,
    method: str,
    calls: Sequence[int],
    delegates: DelegatesWithGraphs,
    runner: Runner,
) -> tuple[MethodCut | str, RunsCall]:
    """Return a method cut at its Arm delegates, or why it cannot be cut, and the function that runs them."""
    graphs = {}
    complete = True
    for delegate, graph in delegates:
        if delegate.method != method:
            continue
        if graph:
            graphs[delegate.index] = graph.tosa, graph.takes
        elif delegate.is_arm:
            complete = False
    run_call = calls_of_graphs(graphs, runner)
    if not complete:
        return "a delegate was not lowered on trial", run_call
    try:
        return MethodCut(file, method, calls), run_call
    except UncuttableError as error:
        return str(error), run_call


def _described_all(
    delegates: DelegatesWithGraphs,
) -> tuple[list[ShippedDelegate], bytes | None]:
    """Return the proof's record of each delegate and the archive of their TOSA graphs, if there are any."""
    described = [_described(*each) for each in delegates]
    graphs = {}
    for each, (_, graph) in zip(described, delegates, strict=True):
        if graph is not None and each.tosa is not None:
            graphs[each.tosa.name] = graph.tosa
    return described, archived(graphs) if graphs else None


def _described(delegate: PteDelegate, graph: ShippedGraph | None) -> ShippedDelegate:
    name = delegate.index if graph is None else graph.tag
    tag = f"{delegate.method}:{name}"
    described = ShippedDelegate(
        delegate.method,
        delegate.index,
        delegate.backend,
        Digest.of(tag, delegate.data),
    )
    if graph is None:
        return described
    described = replace(described, takes=graph.takes)
    if graph.tosa == delegate.data:  # The data of a TOSA delegate is the graph.
        return described
    tosa = Digest.of(f"{tag.replace(':', '.')}.tosa", graph.tosa)
    return replace(described, tosa=tosa)


def _named_tensors(lowered: ExecutorchProgramManager) -> dict[str, str]:
    """Return the name of each parameter, buffer and constant outside delegates, by the hash of its bytes."""
    tensor_names: dict[str, str] = {}
    for method in sorted(lowered.methods):
        program = lowered.exported_program(method)
        state = {**program.constants, **program.state_dict}
        held = held_names(program)
        for node in program.graph.find_nodes(op="placeholder"):
            value = state.get(held.get(node.name, ""))
            if not isinstance(value, Tensor):
                continue
            name = held[node.name]
            path = _path_of_reader(node)
            if path:
                name += f" of {path}"
            sha256 = Digest.of("", bytes_of(value)).sha256
            tensor_names.setdefault(sha256, name)
    return tensor_names


def _path_of_reader(node: Node) -> str:
    """Return the path of the first module that reads a value, directly or dequantised; empty for none."""
    for user in node.users:
        readers = [*user.users] if is_dequantize(user) else []
        for reader in (*readers, user):
            path = module_path(reader)
            if path:
                return path
    return ""


def _weights(file: PTEFile, tensor_names: Mapping[str, str]) -> Digests:
    weights = []
    for index, data in constants_of(file).items():
        digest = Digest.of(f"constant {index}", data)
        name = tensor_names.get(digest.sha256, digest.name)
        weights.append(replace(digest, name=name))
    return tuple(weights)


def _method(name: str, calls: tuple[int, ...], method: MethodCases) -> BundledMethod:
    cases = []
    for case in method.cases:
        inputs = _numbered("input", map(bytes_of, case.stimulus.inputs))
        outputs = _numbered("expected output", map(bytes_of, case.outputs))
        cases.append(BundledCase(case.stimulus.name, case.seed, inputs, outputs))
    return BundledMethod(name, calls, method.computed_by, method.bounds, tuple(cases))


def _numbered(name: str, parts: Iterable[bytes]) -> Digests:
    digests = []
    for number, data in enumerate(parts):
        digests.append(Digest.of(f"{name} {number}", data))
    return tuple(digests)
