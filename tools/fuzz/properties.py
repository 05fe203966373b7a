"""What has to hold besides being right, each for some of the cases because it costs another lowering."""

import copy
import re
from collections.abc import Callable
from dataclasses import replace

import torch
from dynamic import symbols
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from lowering import EDGE, delegates, tosa
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm.partitioner.collect import LEFT_OVER
from tools.fuzz.building import exported, lowered, nets, quantised
from tools.fuzz.cases import Case
from tools.fuzz.outcome import Outcome
from tools.fuzz.toolchain import Made, quick, through_ours


def _partitioner(case: Case, spec: str) -> SafeArmPartitioner:
    return SafeArmPartitioner(tosa(spec), non_fuseable=case.config.policy, verify=case.config.verify)


def explained(made: Made) -> str:
    """Nothing is a fallback without a reason."""
    report = made.partitioner.report
    bare = [v.op for v in report.verdicts if not v.delegate and (not v.reasons or v.reason == LEFT_OVER)]
    return f"no reason: {bare}" if bare else ""


def symbols_kept(made: Made) -> str:
    """A dynamic size stays one, of the range that ExecuTorch itself leaves it."""
    if not made.case.config.dynamic:
        return ""
    for name, program in made.programs.items():
        before, after = symbols(program), symbols(made.manager.exported_program(name))
        if before != after and after != symbols(_without_delegates(program)):
            return f"{name}: {before} became {after}"
    return ""


def _without_delegates(program: ExportedProgram) -> ExportedProgram:
    return to_edge_transform_and_lower(copy.deepcopy(program), compile_config=EDGE).exported_program()


def twice(made: Made) -> str:
    """The same program gives the same bytes again, with the checks of the edge program that are on by default."""
    config = EdgeCompileConfig()
    try:
        lowered(copy.deepcopy(made.programs), None, config)
    except Exception:
        config = EDGE  # ExecuTorch refuses what is in no delegate.
    again = lowered(made.programs, _partitioner(made.case, made.case.config.spec), config)
    return "" if delegates(again) == delegates(made.manager) else "other bytes"


def profiles(made: Made) -> str:
    """INT and INT+FP refuse the same islands."""
    config = made.case.config
    if config.profile == "FP" or config.numbers == "float":
        return ""
    refused = []
    for profile in ("INT", "INT+FP"):
        spec = config.spec.replace(f"+{config.profile}", f"+{profile}")
        partitioner = _partitioner(made.case, spec)
        lowered(made.programs, partitioner)
        refused.append(sorted(v.name for v in partitioner.report.fallbacks if v.issue == "S1"))
    return "" if refused[0] == refused[1] else f"INT refuses {refused[0]}, INT+FP {refused[1]}"


def stock_bytes(made: Made) -> str:
    """A stock lowering gives the same bytes before and after another of ours; one that dies does so both times."""

    def stock() -> list[bytes]:
        try:
            with quick():
                # Stock takes the constants of what it lowers (E2).
                return delegates(lowered(copy.deepcopy(made.programs), TOSAPartitioner(tosa(made.case.config.spec))))
        except Exception as error:
            return [str(type(error)).encode()]

    before = stock()
    lowered(made.programs, _partitioner(made.case, made.case.config.spec))
    return "" if stock() == before else "other bytes"


def as_given(made: Made) -> str:
    """What is quantised computes what the net does, but for rounding, and what floor and the like make of that.

    A value in eight may be another: of a lost or misplaced operator it is most of them. Of what is 0 but for rounding,
    log(x / x), nothing is asked, nor of nets with constants that are not finite: before annotation stock's passes make
    255 of infinity, for masks that are added, and 0 of NaN; nor of what makes integers of NaN.
    """
    if re.search(r"float\(.(inf|nan).\)", made.case.source):
        return ""
    for (name, net), reference in zip(nets(made.case).items(), made.references.values(), strict=True):
        if reference is None:
            continue
        given = _as_it_began(reference, net)
        for sample in made.fresh:
            with torch.no_grad():
                pairs = zip(pytree.tree_leaves(net(*sample)), pytree.tree_leaves(given(*sample)), strict=True)
            for want, got in pairs:
                if not isinstance(want, torch.Tensor) or not want.is_floating_point() or not want.isfinite().all():
                    continue
                if not want.numel():
                    continue
                apart = ((got - want).abs() > 1e-3 * want.abs().max().clamp(min=1e-3)).float()
                if apart.mean() > 1 / 8 and not made.undefined:
                    return f"{name}: {100 * apart.mean():.0f} % of an output are not the net's before quantising"
    return ""


def _as_it_began(reference: GraphModule, net: nn.Module) -> GraphModule:
    """Return the graph with the net's state: its own is that of the quantised graph, which verification has called."""
    given, states = copy.deepcopy(reference), dict(net.named_buffers())
    with torch.no_grad():
        for name, buffer in given.named_buffers():
            if name in states:
                buffer.copy_(states[name])
    return given


def proven(made: Made) -> str:
    """The float proof, which is on by default, has nothing to say of a net that is quantised right."""
    return "; ".join(made.alarms)


def unchanged(made: Made) -> str:
    """No parameter, buffer or constant of the exported net has other bits than before."""
    return made.changed


def beside_float(made: Made) -> str:
    """The report has the figures of every method that was quantised, each output among them."""
    if made.case.config.numbers == "float":
        return ""
    for found in made.partitioner.report.float_comparisons:
        if not found.outputs and not found.note:
            return f"{found.method}: nothing is said of the float net"
    return "" if made.partitioner.report.float_comparisons else "no record of the float net"


def again(made: Made) -> str:
    """A second export of the same net gives the same bytes, after one for another target as well."""
    if made.case.config.numbers == "float":
        return ""
    modules = {name: exported(made.case, net, made.calibration[0]) for name, net in nets(made.case).items()}
    modules = {name: program.module(check_guards=False) for name, program in modules.items()}
    found = []
    for profile in (made.case.config.profile, "INT+FP", made.case.config.profile):
        case = replace(made.case, config=replace(made.case.config, profile=profile))
        programs = {}
        for name, module in modules.items():
            graph, _ = quantised(case, module, made.calibration, SafeTOSAQuantizer)
            programs[name] = exported(case, graph, made.calibration[0])
        found.append(delegates(lowered(programs, _partitioner(case, case.config.spec))))
    return "" if found[0] == found[2] == delegates(made.manager) else "other bytes"


ALWAYS: dict[str, Callable[[Made], str]] = {"explained": explained, "symbols": symbols_kept, "as-given": as_given}
ALWAYS |= {"float-proof": proven, "users-tensors": unchanged, "beside-float": beside_float}
EXTRA = {"twice": twice, "profiles": profiles, "stock-bytes": stock_bytes, "again": again}


def run(case: Case) -> Outcome:
    """Return what came of a case under our classes, all its properties looked at."""
    outcome, made = through_ours(case)
    if outcome.verdict != "right":
        return outcome
    for name, holds in {**ALWAYS, **{name: EXTRA[name] for name in case.config.properties}}.items():
        if detail := holds(made):
            outcome.verdict, outcome.stage, outcome.detail = "wrong", name, detail[:300]
            break
    return outcome
