"""Whether a lowered program computes what its quantised graph does."""

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from executorch.exir import EdgeProgramManager, to_edge
from executorch.exir.lowered_backend_module import LoweredBackendModule
from lowering import EDGE, output_steps
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from benchmarks.delegated_macs import shares
from safe_arm import verify
from safe_arm.core.island import QUANTIZE, QParams, op_name
from safe_arm.core.programs import placeholder_values, user_outputs
from safe_arm.verification.concrete_sizes import UnknownSizeError
from safe_arm.verification.evaluation import Evaluation, EvaluationError, evaluated, quantised_constants
from safe_arm.verification.lowered import delegate_of, run_with
from safe_arm.verification.model_server import NoResultError, ReferenceModelError
from safe_arm.verification.reference_model import run_lowered
from safe_arm.verification.tables import interpolated
from safe_arm.verification.tolerances import is_table
from tools.fuzz.building import Sample
from tools.fuzz.outcome import Outcome

#: How far an output may be off when every delegate is right on what reached it: a value in the middle between two
#: codes may go to either, and what comes after spreads that. Codes of int8, of int16; floats in parts of the largest.
CODES, CODES_16, RELATIVE = 6, 256, 1e-4


def judged(
    manager: EdgeProgramManager,
    method: str,
    reference: GraphModule,
    program: ExportedProgram,
    tried: Sequence[Sample],
    limit: int,
    fallbacks: Collection[str] = (),
) -> Outcome:
    """Compare one method of a lowered program with its quantised graph, and that exported, on inputs.

    An output may be off by a limit of codes, see ``CODES``. The functions of fallbacks are no tables.
    """
    lowered = manager.exported_program(method)
    try:
        report = verify(manager, tried, reference=reference, method=method)
    except EvaluationError as error:
        return Outcome("invalid", "evaluate", str(error)[:300])
    except UnknownSizeError as error:
        return Outcome("refused", "verify", f"UnknownSizeError: {error}"[:300])
    except NoResultError as error:
        return Outcome("refused", "verify", f"NoResultError: {error}"[:300])
    except ReferenceModelError as error:
        return Outcome("wrong", "reference-model", str(error)[:300])
    worst = max((gap.worst for gap in report.outputs if gap.codes), default=0.0)
    right = shares(lowered, report).needed
    if report.first_wrong is not None:
        return Outcome("wrong", "delegate", f"{report.first_wrong.reason}"[:300], macs=right, worst=worst)
    if any((gap.worst > limit) if gap.codes else (gap.sqnr < 60) for gap in report.outputs):
        off = _off(lowered, program, tried, fallbacks)
        if (off[0] > limit or off[1] > RELATIVE) and not (
            _graphs_agree(lowered, program, tried) or _same_alone(lowered, program, tried)
        ):
            return Outcome("wrong", "output", f"codes, floats off by {off}", macs=right, worst=max(off))
    return Outcome(macs=right, worst=worst)


def _with_tables(
    program: ExportedProgram, state: Mapping[str, Tensor], sample: Sample, fallbacks: Collection[str]
) -> dict[Node, Any]:
    """Return the values of a graph whose functions of int16 are read from tables but for those on the CPU."""
    constants = quantised_constants(program, state)
    evaluation = Evaluation(placeholder_values(program, state, sample), ties_up=True, constants=constants)
    for node in program.graph.nodes:
        evaluation.run([node])
        function = node.args[0] if op_name(node) == QUANTIZE else None
        if (
            function in evaluation.values
            and is_table([function], evaluation.values[node])
            and op_name(function) not in fallbacks
        ):
            lines = interpolated([*function.all_input_nodes, function, node], evaluation, farthest=2**16)
            if node in lines:
                q = QParams.of(node)
                evaluation.values[node] = (lines[node].codes + 0.5).floor().clamp(q.qmin, q.qmax).to(q.dtype)
    return evaluation.values


def _off(
    actual: ExportedProgram, program: ExportedProgram, tried: Sequence[Sample], fallbacks: Collection[str]
) -> tuple[float, float]:
    """How far the outputs are off, in codes and in parts of a float's size; ties go to whichever side is nearer."""
    state = {**program.state_dict, **program.constants}
    outputs = program.graph.output_node().args[0]
    module = program.module(check_guards=False)
    steps = output_steps(module)
    worst = [0.0, 0.0]
    for sample in tried:
        given = user_outputs(actual, run_lowered(actual, sample))
        ways = [evaluated(program, state, sample, ties_up=up).values for up in (False, True)]
        ways.append(_with_tables(program, state, sample, fallbacks))
        with torch.no_grad():  # As the user runs the quantised graph: a cast may go the other way in float32.
            in_float = tree_leaves(module(*sample))
        for index, (ours, step) in enumerate(zip(given, steps, strict=True)):
            both = [*(values[outputs[index]] for values in ways), in_float[index]]
            worst[step == 1.0] = max(worst[step == 1.0], _apart(ours, both, step))
    return worst[0], worst[1]


def _apart(ours: Tensor, wanted: Sequence[Tensor], step: float) -> float:
    """How far a tensor is from the nearest of some, in codes, or of real floats in parts of the largest of them."""
    if not ours.numel():
        return 0.0
    unit = step if step != 1.0 else max(1e-30, *(float(each.double().abs().max()) for each in wanted), 1e-30)
    return min(float((ours.double() - each.double()).abs().max()) / unit for each in wanted)


def _same_alone(actual: ExportedProgram, program: ExportedProgram, tried: Sequence[Sample]) -> bool:
    """Whether the lowered program gives what ExecuTorch makes of the quantised graph without a delegate: its
    decompositions round as they do, and the largest of equal values is then another one.
    """
    steps = output_steps(program.module(check_guards=False))
    alone = to_edge(copy.deepcopy(program), compile_config=EDGE).exported_program().module(check_guards=False)
    for sample in tried:
        given = user_outputs(actual, run_lowered(actual, sample))
        with torch.no_grad():
            wanted = tree_leaves(alone(*sample))
        if any(_apart(*each) > RELATIVE for each in zip(given, ([each] for each in wanted), steps, strict=True)):
            return False
    return True


def _graphs_agree(actual: ExportedProgram, program: ExportedProgram, tried: Sequence[Sample]) -> bool:
    """Whether the lowered program, each delegate giving what its graph gives in double, gives to the code what the
    quantised graph does: then nothing was lost in between, and what remains was looked at operator by operator.
    """
    state = {**program.state_dict, **program.constants}
    outputs, steps = program.graph.output_node().args[0], output_steps(program.module(check_guards=False))

    def of_graph(_: str, lowered: LoweredBackendModule, inputs: Sequence[Tensor]) -> list[Tensor]:
        delegate = delegate_of(lowered, inputs)
        values = evaluated(delegate.program, delegate.state, inputs).values
        return [values[node].to(node.meta["val"].dtype) for node in delegate.outputs]

    for sample in tried:
        wanted = evaluated(program, state, sample).values
        given = user_outputs(actual, run_with(of_graph, actual, sample))
        for node, ours, step in zip(outputs, given, steps, strict=True):
            if _apart(ours, [wanted[node]], step) > (0.5 if step != 1.0 else RELATIVE):
                return False
    return True
