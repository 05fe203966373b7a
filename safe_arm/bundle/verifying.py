"""Check a program file against its bundle and manifest: hashes first, then everything that can be run here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from safe_arm import seams
from safe_arm._compat.pte import (
    MethodCut,
    PteDelegate,
    UncuttableError,
    compiled_again,
    delegates_of,
    read_program,
)
from safe_arm._compat.pte_runtime import Case, RuntimeRunError, check_bundle
from safe_arm.bundle.hashes import Contents, differences
from safe_arm.bundle.manifest import (
    AGAIN,
    BundledMethod,
    BundleFiles,
    Manifest,
    ShippedDelegate,
    read_manifest,
    require_program,
    unarchived,
)
from safe_arm.bundle.running import GraphAndTaken, calls_of_graphs, run_method
from safe_arm.core.differences import absolute_difference
from safe_arm.core.errors import SafeArmError, UsageError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.lowering_record import Lowering, lowering
from safe_arm.core.toolchain import require_compiler
from safe_arm.report.fidelity_text import float_net_lines, verified_line
from safe_arm.report.numbers import counted
from safe_arm.verification import vulkan_device
from safe_arm.verification.delegate import Runner
from safe_arm.verification.model_process import ModelProcess
from safe_arm.verification.model_server import require_reference_model

Outcome = Literal["passed", "failed", "not run", "recorded"]
#: The delegates of a program, each as the proof has it and as the program file has it.
Delegates = Sequence[tuple[ShippedDelegate, PteDelegate]]
#: The TOSA graph of each Arm delegate by its method and its place there.
Graphs = Mapping[tuple[str, int], bytes]
#: Seconds that one run of a tool or of the reference model may take.
TIME_LIMIT = 600.0
_COMPILERS = {"EthosUBackend": "Vela", "VgfBackend": "model-converter"}


@dataclass(frozen=True)
class Step:
    """One check of a program file.

    Attributes:
        name: the name of the check.
        outcome: its result.
        detail: the work done, the fault, why it was not run, or the proof's own words.
    """

    name: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True)
class CheckedProgram:
    """The results of the check of a program file.

    Attributes:
        steps: in the order they were done.
    """

    steps: tuple[Step, ...]

    @property
    def good(self) -> bool:
        """True if no check failed."""
        return all(step.outcome != "failed" for step in self.steps)


def verify_pte(pte: Path, *, manifest: Path | None = None) -> CheckedProgram:
    """Check that a program file is the proven one, and that it gives the outputs that its bundle expects.

    Hashes come first; if one differs, nothing is run. Then each delegate is compiled again from its TOSA graph, and
    the program is run on the bundled inputs: Arm delegates as TOSA graphs in the reference model, VGF on Vulkan where
    there is a driver, everything else in the runtime of the ExecuTorch wheel.

    Args:
        pte: the program; its bundle is next to it.
        manifest: the proof, if it is elsewhere; the bundle is then next to the proof.

    Raises:
        UsageError: a file is missing, truncated, made by another tool or of another program.
    """
    return CheckedProgram(tuple(_steps(pte, manifest)))


def _steps(pte: Path, manifest: Path | None) -> Iterator[Step]:
    require_program(pte)
    files = BundleFiles.beside(pte)
    data = pte.read_bytes()
    file = read_program(data, repr(str(pte)))
    proof = read_manifest(manifest or files.manifest)
    folder = (manifest or pte).parent
    archive = None if proof.graphs is None else folder / proof.graphs.name
    contents = Contents.of(data, file, folder / proof.bundle.name, archive)
    wrong = differences(proof, contents, str(manifest or files.manifest))
    for name, detail in wrong:
        yield Step(name, "failed", detail)
    if wrong:
        yield Step("runs", "not run", "the hashes differ")
        return
    cases = sum(len(method.cases) for method in proof.methods)
    parts = (
        "the program",
        counted(len(proof.delegates), "delegate"),
        counted(len(proof.weights), "weight"),
        counted(cases, "bundled case"),
    )
    yield Step("hashes", "passed", ", ".join(parts))
    yield from _recorded(proof)
    delegates = list(zip(proof.delegates, delegates_of(file), strict=True))
    graphs = _graphs(contents, delegates)
    for shipped, delegate in delegates:
        if delegate.backend in _COMPILERS:
            graph = graphs.get((shipped.method, shipped.index))
            yield _compiled(shipped, delegate, graph)
    for method in proof.methods:
        cut = attempted(MethodCut, file, method.method, method.calls)
        own = [(s, d) for s, d in delegates if s.method == method.method]
        yield from _run_here(method, cut, own, graphs, contents)


def _graphs(contents: Contents, delegates: Delegates) -> Graphs:
    """Return the TOSA graph of each Arm delegate, from the archive or from the delegate itself."""
    files = {}
    if contents.graphs is not None:
        files = unarchived(contents.graphs)
    graphs = {}
    for shipped, delegate in delegates:
        if delegate.is_arm:
            tosa = files[shipped.tosa.name] if shipped.tosa else delegate.data
            graphs[shipped.method, shipped.index] = tosa
    return graphs


def _recorded(proof: Manifest) -> Iterator[Step]:
    """Yield the program's results as the proof has them; they were measured when the program was exported."""
    for compared in proof.float_comparisons:
        method = f"{compared.method}: " if len(proof.methods) > 1 else ""
        for line in float_net_lines(compared):
            yield Step("float net", "recorded", method + line)
    if proof.verifications:
        yield Step("verified", "recorded", verified_line(proof.verifications))


def _compiled(
    shipped: ShippedDelegate, delegate: PteDelegate, tosa: bytes | None
) -> Step:
    """Compile a delegate's TOSA graph again and compare the bytes."""
    compiler = _COMPILERS[delegate.backend]
    name = f"{shipped.data.name} compiled again by {compiler}"
    if shipped.tosa is None or tosa is None:
        return Step(name, "not run", f"no TOSA graph was bundled; {AGAIN}")
    try:
        require_compiler("ethos-u" if delegate.backend == "EthosUBackend" else "vgf")
    except UsageError as error:
        return Step(name, "not run", str(error))
    seams.install()
    with lowering(Lowering(time_limit=TIME_LIMIT)):
        again = attempted(compiled_again, delegate, tosa)
    if isinstance(again, Caught):
        return Step(name, "failed", again.reason)
    if again != delegate.data:
        sizes = f"{len(again)} now, {len(delegate.data)} in the program"
        return Step(name, "failed", f"other bytes: {sizes}")
    return Step(name, "passed", f"the same {len(again)} bytes")


def _run_here(
    method: BundledMethod,
    cut: MethodCut | Caught,
    delegates: Delegates,
    graphs: Graphs,
    contents: Contents,
) -> Iterator[Step]:
    """Run a method end to end in every way that this machine can."""
    arm = [(shipped, delegate) for shipped, delegate in delegates if delegate.is_arm]
    cases = contents.cases[method.method]
    if not arm:
        yield _in_runtime(method, contents.bundle)
        return
    name = f"{method.method} in the TOSA reference model and ExecuTorch's runtime"
    if isinstance(cut, Caught):
        if not isinstance(cut.root, UncuttableError):
            raise cut.root
        yield Step(name, "not run", str(cut.root))
        return
    calls = {}
    vgf = {}
    missing = []
    for shipped, delegate in arm:
        calls[shipped.index] = graphs[shipped.method, shipped.index], shipped.takes
        if shipped.tosa is None and delegate.backend != "TOSABackend":
            missing.append(shipped.data.name)
        if delegate.backend == "VgfBackend":
            vgf[shipped.index] = delegate.data, shipped.takes
    if missing:
        detail = f"no TOSA graph of {missing[0]} was bundled; {AGAIN}"
        yield Step(name, "not run", detail)
    else:
        yield _compared(name, method, cut, calls, _reference_model, cases)
    if vgf:
        name = f"{method.method} with the program's own VGF on Vulkan"
        yield _compared(name, method, cut, vgf, _vulkan, cases)


def _in_runtime(method: BundledMethod, bundle: bytes) -> Step:
    name = f"{method.method} in ExecuTorch's runtime, by its own comparison"
    for number, case in enumerate(method.cases):
        wrong = check_bundle(bundle, method.method, number, method.atol)
        if wrong:
            return Step(name, "failed", f"case {case.name!r}: {wrong}")
    return Step(name, "passed", _cases_and_tolerance(method))


def _cases_and_tolerance(method: BundledMethod) -> str:
    return f"{counted(len(method.cases), 'case')}, atol {method.atol:g}"


@contextmanager
def _reference_model() -> Iterator[Runner]:
    require_reference_model()
    with ModelProcess(TIME_LIMIT) as model:
        yield model


@contextmanager
def _vulkan() -> Iterator[Runner]:
    vulkan_device.require_vulkan()
    yield vulkan_device.run_vgf


def _compared(
    name: str,
    method: BundledMethod,
    cut: MethodCut,
    graphs: Mapping[int, GraphAndTaken],
    device: Callable[[], AbstractContextManager[Runner]],
    cases: Sequence[Case],
) -> Step:
    """Run the bundled cases and compare with the expected outputs."""
    place = ""
    try:
        with device() as runner:
            run_call = calls_of_graphs(graphs, runner)
            for case, (inputs, expected) in zip(method.cases, cases, strict=True):
                place = f"case {case.name!r}"
                outputs = run_method(cut, inputs, run_call)
                detail = _difference(method, outputs, expected)
                if detail:
                    return Step(name, "failed", f"{place}, {detail}")
    except UsageError as error:
        return Step(name, "not run", str(error))
    except (RuntimeRunError, SafeArmError) as error:
        return Step(name, "failed", f"{place}: {error}")
    return Step(name, "passed", _cases_and_tolerance(method))


def _difference(
    method: BundledMethod, outputs: Sequence[Tensor], expected: Sequence[Tensor]
) -> str:
    """Return the first output that differs by more than is allowed; empty if none does."""
    triples = zip(outputs, expected, method.bounds, strict=True)
    for number, (ours, theirs, bound) in enumerate(triples):
        off = absolute_difference(ours, theirs)
        worst = float(off.max()) if off.numel() else 0.0
        if worst > bound.atol:
            return f"output {number}: {worst:g} from the expected one, allowed is {bound.atol:g}"
    return ""
