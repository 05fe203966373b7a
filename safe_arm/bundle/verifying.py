"""Check a program file against its bundle and manifest: hashes first, then everything of it that can be run here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from safe_arm._compat.pte_runtime import RuntimeRunError, check_bundle
from safe_arm.bundle.bundle_files import BundleFiles, unarchived
from safe_arm.bundle.fvp import platform_for, run_on
from safe_arm.bundle.hashes import Contents, differences
from safe_arm.bundle.manifest import (
    AGAIN,
    BundledMethod,
    Manifest,
    ShippedDelegate,
    read_manifest,
)
from safe_arm.bundle.running import RunsCall, calls_of_graphs, run_method
from safe_arm.core.errors import SafeArmError, UsageError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.lowering_record import Lowering, lowering
from safe_arm.core.toolchain import require_compiler
from safe_arm.report.fidelity_text import float_net_lines, verified_line
from safe_arm.report.numbers import counted
from safe_arm.verification import vulkan_device
from safe_arm.verification.distance import absolute_difference
from safe_arm.verification.model_process import ModelProcess
from safe_arm.verification.reference_model import require_reference_model

Outcome = Literal["passed", "failed", "not run", "recorded"]
#: Seconds that one run of a tool or of the reference model may take.
TIME_LIMIT = 600.0
_COMPILERS = {"EthosUBackend": "Vela", "VgfBackend": "model-converter"}


@dataclass(frozen=True)
class Step:
    """One thing that was checked, or could not be.

    Attributes:
        name: what it is.
        outcome: what came of it.
        detail: what was done, what is wrong, why it was not run, or what the proof says.
    """

    name: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True)
class Checked:
    """What the check of a program file came to.

    Attributes:
        steps: in the order they were done.
    """

    steps: tuple[Step, ...]

    @property
    def good(self) -> bool:
        """Whether nothing that was checked is wrong."""
        return all(step.outcome != "failed" for step in self.steps)


def verify_pte(
    pte: Path, *, manifest: Path | None = None, runner: Path | None = None
) -> Checked:
    """Check that a program file is the one that was proven, and that it computes here what its bundle expects.

    Hashes come first; where one differs, nothing is run. Then each delegate is compiled again from its TOSA graph, and
    the program is run on the bundled inputs: Arm delegates as TOSA graphs in the reference model, VGF on Vulkan where
    there is a driver, everything else in the runtime of the ExecuTorch wheel.

    Args:
        pte: the program; its bundle lies beside it.
        manifest: the proof, if it is elsewhere; the bundle lies beside it then.
        runner: ExecuTorch's ``arm_executor_runner`` for the target, for an FVP on PATH.

    Raises:
        UsageError: a file is missing, truncated, none of ours or of another program.
    """
    return Checked(tuple(_steps(pte, manifest, runner)))


def _steps(pte: Path, manifest: Path | None, runner: Path | None) -> Iterator[Step]:
    if not pte.is_file():
        raise UsageError(
            f"program {str(pte)!r} does not exist; give a .pte of safe-arm export --bundle"
        )
    files = BundleFiles.beside(pte)
    data = pte.read_bytes()
    file = read_program(data, repr(str(pte)))
    proof = read_manifest(manifest or files.manifest)
    folder = (manifest or pte).parent
    archive = None if proof.graphs is None else folder / proof.graphs.name
    contents = Contents.of(data, file, folder / proof.bundle.name, archive)
    wrong = differences(proof, contents, str(manifest or files.manifest))
    yield from (Step(name, "failed", detail) for name, detail in wrong)
    if wrong:
        yield Step("runs", "not run", "the hashes differ")
        return
    cases = sum(len(method.cases) for method in proof.methods)
    counts = {
        "delegate": len(proof.delegates),
        "weight": len(proof.weights),
        "bundled case": cases,
    }
    yield Step(
        "hashes",
        "passed",
        ", ".join(("the program", *(counted(n, noun) for noun, n in counts.items()))),
    )
    yield from _recorded(proof)
    graphs = (
        unarchived(contents.graphs, "the archive of graphs")
        if contents.graphs is not None
        else {}
    )
    delegates = list(zip(proof.delegates, delegates_of(file), strict=True))
    tosa = {
        (d.method, d.index): graphs[d.tosa.name] if d.tosa else each.data
        for d, each in delegates
        if each.is_arm
    }
    for shipped, delegate in delegates:
        if delegate.backend in _COMPILERS:
            yield _compiled(
                shipped, delegate, tosa.get((shipped.method, shipped.index))
            )
    for method in proof.methods:
        cut = attempted(MethodCut, file, method.method, method.calls)
        own = [(s, d) for s, d in delegates if s.method == method.method]
        yield from _run_here(method, cut, own, tosa, contents)
    yield from _on_platform(proof, contents.bundle, runner)


def _recorded(proof: Manifest) -> Iterator[Step]:
    """Yield what the proof says of the program's results; it was measured when the program was exported."""
    several = len(proof.methods) > 1
    for compared in proof.float_comparisons:
        for line in float_net_lines(compared):
            yield Step(
                "float net",
                "recorded",
                f"{compared.method}: {line}" if several else line,
            )
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
        return Step(
            name,
            "failed",
            f"other bytes: {len(again)} now, {len(delegate.data)} in the program",
        )
    return Step(name, "passed", f"the same {len(again)} bytes")


def _run_here(
    method: BundledMethod,
    cut: MethodCut | Caught,
    delegates: Sequence[tuple[ShippedDelegate, PteDelegate]],
    tosa: dict[tuple[str, int], bytes],
    contents: Contents,
) -> Iterator[Step]:
    """Run a method end to end in every way that this machine can."""
    arm = [(s, d) for s, d in delegates if d.is_arm]
    cases = contents.cases[method.method]
    if not arm:
        yield _in_runtime(method, contents.bundle)
        return
    name = f"{method.method} in the TOSA reference model and ExecuTorch's runtime"
    if isinstance(cut, Caught):
        if not isinstance(cut.root, UncuttableError):
            raise cut.root
        yield Step(name, "not run", f"{cut.root}")
        return
    missing = next(
        (s.data.name for s, d in arm if s.tosa is None and d.backend != "TOSABackend"),
        None,
    )
    if missing is not None:
        yield Step(name, "not run", f"no TOSA graph of {missing} was bundled; {AGAIN}")
    else:
        graphs = {s.index: (tosa[s.method, s.index], s.takes) for s, _ in arm}
        yield _in_model(name, method, cut, graphs, cases)
    if any(d.backend == "VgfBackend" for _, d in arm):
        yield _on_vulkan(
            method, cut, {s.index: (d.data, s.takes) for s, d in arm}, cases
        )


def _in_runtime(method: BundledMethod, bundle: bytes) -> Step:
    name = f"{method.method} in ExecuTorch's runtime, by its own comparison"
    for number, case in enumerate(method.cases):
        if wrong := check_bundle(
            bundle, method.method, number, rtol=0.0, atol=method.atol
        ):
            return Step(name, "failed", f"case {case.name!r}: {wrong}")
    return Step(
        name, "passed", f"{counted(len(method.cases), 'case')}, atol {method.atol:g}"
    )


def _in_model(
    name: str,
    method: BundledMethod,
    cut: MethodCut,
    graphs: dict[int, tuple[bytes, tuple[int, ...]]],
    cases: Sequence[tuple[Sequence[Tensor], Sequence[Tensor]]],
) -> Step:
    try:
        require_reference_model()
    except UsageError as error:
        return Step(name, "not run", str(error))
    with ModelProcess(TIME_LIMIT) as model:
        return _compared(name, method, cut, calls_of_graphs(graphs, model), cases)


def _on_vulkan(
    method: BundledMethod,
    cut: MethodCut,
    vgf: dict[int, tuple[bytes, tuple[int, ...]]],
    cases: Sequence[tuple[Sequence[Tensor], Sequence[Tensor]]],
) -> Step:
    name = f"{method.method} with the program's own VGF on Vulkan"
    try:
        vulkan_device.require_vulkan()
        return _compared(
            name, method, cut, calls_of_graphs(vgf, vulkan_device.run_vgf), cases
        )
    except UsageError as error:
        return Step(name, "not run", str(error))


def _compared(
    name: str,
    method: BundledMethod,
    cut: MethodCut,
    run_call: RunsCall,
    cases: Sequence[tuple[Sequence[Tensor], Sequence[Tensor]]],
) -> Step:
    """Run the bundled cases and compare with the expected outputs."""
    for known, (inputs, expected) in zip(method.cases, cases, strict=True):
        try:
            outputs = run_method(cut, inputs, run_call)
        except UsageError:
            raise
        except (RuntimeRunError, SafeArmError) as error:
            return Step(name, "failed", f"case {known.name!r}: {error}")
        for number, (ours, theirs, bound) in enumerate(
            zip(outputs, expected, method.bounds, strict=True)
        ):
            off = absolute_difference(ours, theirs)
            worst = float(off.max()) if off.numel() else 0.0
            if worst > bound.atol:
                place = f"case {known.name!r}, output {number}"
                return Step(
                    name,
                    "failed",
                    f"{place}: {worst:g} from the expected one, allowed is {bound.atol:g}",
                )
    return Step(name, "passed", f"{counted(len(cases), 'case')}, atol {method.atol:g}")


def _on_platform(proof: Manifest, bundle: bytes, runner: Path | None) -> Iterator[Step]:
    """Run the bundled program on an FVP, if the target has one."""
    target = str(proof.subject.get("target", ""))
    if (platform := platform_for(target)) is None:
        return
    name = f"on {platform.name}"
    if platform.path is None:
        yield Step(name, "not run", f"{platform.name} is not on PATH")
    elif runner is None:
        yield Step(
            name,
            "not run",
            "give ExecuTorch's arm_executor_runner for the target with --fvp-runner",
        )
    elif wrong := run_on(platform, runner, bundle):
        yield Step(name, "failed", wrong)
    else:
        yield Step(
            name,
            "passed",
            "by the runner's own comparison, with the tolerances it was built with",
        )
