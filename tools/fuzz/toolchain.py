"""One case through ours, and through stock: quantise, lower, compare; an outcome whatever happens."""

import copy
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.exir import EdgeProgramManager
from lowering import tosa
from torch.export import ExportedProgram
from torch.fx import GraphModule
from users_tensors import UsersTensors

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer, UsageError
from safe_arm.acceleration import decompositions, fake_values, idle_passes, late_code
from safe_arm.core.errors import FloatProofWarning
from tools.fuzz.building import Sample, exported, lowered, nets, quantised, samples
from tools.fuzz.carried_state import lost_state
from tools.fuzz.cases import Case
from tools.fuzz.judging import CODES, CODES_16, judged
from tools.fuzz.outcome import Outcome, of_exception
from tools.fuzz.undefined import undefined


@dataclass
class Made:
    """What there is of a case so far; by method the float graphs that ours calibrated, and the quantised ones."""

    case: Case
    stage: str = "build"
    references: dict[str, GraphModule | None] = field(default_factory=dict)
    graphs: dict[str, GraphModule] = field(default_factory=dict)
    programs: dict[str, ExportedProgram] = field(default_factory=dict)
    manager: EdgeProgramManager | None = None
    partitioner: SafeArmPartitioner | None = None
    calibration: list[Sample] = field(default_factory=list)
    fresh: list[Sample] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    alarms: list[str] = field(default_factory=list)
    #: Tensors of the net that have other bits once it is lowered; a run of what came of it may well write its state.
    changed: str = ""

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        self.stage, began = stage, time.process_time()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + round(time.process_time() - began, 3)

    @property
    def on_cpu(self) -> set[str]:
        """The operators that fell back from ours."""
        report = None if self.partitioner is None else self.partitioner.report
        return set() if report is None else {verdict.op for verdict in report.fallbacks}

    @property
    def finite(self) -> bool:
        """Whether the quantised graphs give finite values."""
        with torch.no_grad():
            values = [v for graph in self.graphs.values() for sample in self.fresh for v in graph(*sample)]
        return all(bool(v.isfinite().all()) for v in values if isinstance(v, torch.Tensor) and v.is_floating_point())

    @property
    def undefined(self) -> bool:
        """Whether a quantised graph makes an integer of a NaN."""
        return any(undefined(graph, self.fresh) for graph in self.graphs.values())


def built(case: Case) -> tuple[Made, dict[str, torch.nn.Module]]:
    """Return the net, exported as PyTorch does; raises what PyTorch raises."""
    made, modules = Made(case), nets(case)
    made.calibration, made.fresh = samples(case)
    with torch.no_grad():
        for net in modules.values():
            tried = copy.deepcopy(net)
            for sample in (*made.calibration, *made.fresh):
                tried(*sample)
    return made, {
        name: exported(case, net, made.calibration[0]).module(check_guards=False) for name, net in modules.items()
    }


def through(made: Made, modules: dict[str, torch.nn.Module], quantizer_class: type, partitioner) -> None:
    """Quantise and lower."""
    case = made.case
    with made.timed("quantise"):
        for name, module in modules.items():
            made.graphs[name], made.references[name] = quantised(case, module, made.calibration, quantizer_class)
    with made.timed("export"):
        made.programs = {name: exported(case, graph, made.calibration[0]) for name, graph in made.graphs.items()}
    with made.timed("lower"):
        made.manager = lowered(made.programs, partitioner)


def compared(made: Made) -> Outcome:
    """Judge every method; the first that is not right decides, and the methods behind it are not judged."""
    limit = CODES_16 if made.case.config.numbers == "a16w8" else CODES
    outcome, right = Outcome(), 0
    with made.timed("verify"):
        for name, graph in made.graphs.items():
            one = judged(made.manager, name, graph, made.programs[name], made.fresh, limit, made.on_cpu)
            right += one.macs
            if one.verdict == "wrong" and not made.finite:
                continue  # what is not finite is compared with nothing
            if one.verdict in ("wrong", "refused") and made.undefined:
                one = Outcome("invalid", "undefined", one.detail)
            outcome = one if one.verdict != "right" else Outcome(worst=max(one.worst, outcome.worst))
            if one.verdict != "right":
                break
        if outcome.verdict == "right" and (lost := lost_state(made, limit)):
            return replace(outcome, verdict="wrong", stage="state", detail=lost)
    return replace(outcome, macs=right)


def lowers_alone(case: Case) -> bool:
    """Whether ExecuTorch lowers the net as it is, without quantiser and partitioner."""
    made, modules = built(case)
    try:
        lowered({name: exported(case, module, made.calibration[0]) for name, module in modules.items()}, None)
    except Exception:
        return False
    return True


def through_ours(case: Case) -> tuple[Outcome, Made | None]:
    """Return what came of a case under our classes, and what was made on the way."""
    made = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", FloatProofWarning)
        try:
            made, modules = built(case)
        except Exception as error:
            return of_exception("build", error, "invalid"), None
        try:
            made.partitioner = SafeArmPartitioner(
                tosa(case.config.spec), non_fuseable=case.config.policy, verify=case.config.verify
            )
            tensors = UsersTensors(modules.values())
            through(made, modules, SafeTOSAQuantizer, made.partitioner)
            made.changed = tensors.changed()
            made.alarms = [str(each.message) for each in caught if issubclass(each.category, FloatProofWarning)]
            outcome = compared(made)
        except UsageError as error:
            outcome = of_exception(made.stage, error, "refused")
        except (Exception, SystemExit, RecursionError) as error:
            outcome = of_exception(made.stage, error, "died" if lowers_alone(case) else "invalid")
    outcome.seconds = made.seconds
    if made.partitioner is not None and made.partitioner.report is not None:
        report = made.partitioner.report
        outcome.delegates = len(report.delegates)
        outcome.fallbacks = dict(Counter(verdict.stage for verdict in report.fallbacks))
        outcome.demoted = [(verdict.op, f"{verdict.stage}: {verdict.reason[:200]}") for verdict in report.demoted]
    return outcome, made


def through_stock(case: Case) -> Outcome:
    """Return what came of a case under stock's classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made, modules = built(case)
        except Exception as error:
            return of_exception("build", error, "invalid")
        try:
            with quick():
                through(made, modules, TOSAQuantizer, TOSAPartitioner(tosa(case.config.spec)))
            outcome = compared(made)
        except (Exception, SystemExit, RecursionError) as error:
            outcome = of_exception(made.stage, error)
    outcome.seconds = made.seconds
    return outcome


@contextmanager
def quick() -> Iterator[None]:
    """Lower with stock's classes in less time, to the same bytes (``test_toolchain.py``)."""
    quicker = decompositions.merged(), fake_values.remembered(), idle_passes.skipped()
    with ExitStack() as stack:
        for each in (*quicker, late_code.late()):
            stack.enter_context(each)
        yield
