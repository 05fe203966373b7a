"""An activation that is left float between quantised layers is delegated; stock raises, or leaves it on the CPU."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.exir import to_edge
from graph_changes import quantised_around
from lowering import EDGE, PROFILES, delegates, edge_program, lower, lower_exactly, tosa
from small import image

from safe_arm import SafeArmPartitioner
from safe_arm.core.island import op_name
from safe_arm.core.plain_reasons import TAKEN_APART, plain
from safe_arm.partitioner.kept_whole import kept_whole

ACTIVATIONS = {"hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "silu": F.silu}


def activation_of(graph_module, name):
    (node,) = [node for node in graph_module.graph.nodes if op_name(node) == f"aten::{name}"]
    return node


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_stock_raises_or_cuts_the_delegate(name):
    graph_module = quantised_around(ACTIVATIONS[name], TOSAQuantizer)
    if name == "silu":
        assert len(delegates(lower(graph_module, image(), TOSAPartitioner(tosa(PROFILES[1]))))) == 2
    else:
        with pytest.raises(RuntimeError, match=f"Unknown operator .*{name}"):
            lower(graph_module, image(), TOSAPartitioner(tosa(PROFILES[1])))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_ours_delegates_it(name):
    partitioner = lower_exactly(quantised_around(ACTIVATIONS[name]), tosa(PROFILES[1]), image(7), image(8))
    assert len(partitioner.report.verifications) == 1


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_one_that_is_quantised_is_stocks_to_decide(name):
    graph_module = quantised_around(ACTIVATIONS[name], in_part=False)
    assert kept_whole(activation_of(graph_module, name), "reject") is None
    assert kept_whole(activation_of(quantised_around(ACTIVATIONS[name]), name), "reject") is False


def test_any_other_operator_of_an_island_is_stocks_to_decide_too():
    graph_module = quantised_around(F.relu, in_part=False)
    assert kept_whole(activation_of(graph_module, "relu").args[0], "reject") is None


def reasons_in(program, profile=PROFILES[0], **options):
    """Why a program's operators would stay on the CPU, in a dry run."""
    report = SafeArmPartitioner(tosa(profile), preflight=False, verify=False, **options).audit(program)
    return {verdict.op: verdict.reason for verdict in report.verdicts if verdict.computes and not verdict.delegate}


@pytest.mark.parametrize(("operator", "part"), [("silu", "mul"), ("hardswish", "div"), ("linear", "addmm")])
def test_what_to_edge_took_apart_says_so(operator, part):
    function = ACTIVATIONS.get(operator) or torch.nn.Linear(8, 8)
    graph_module = quantised_around(function, in_part=False)
    for decomposed in (False, True):
        program = torch.export.export(graph_module, image())
        program = to_edge(program.run_decompositions() if decomposed else program, compile_config=EDGE)
        reasons = reasons_in(program.exported_program())
        assert reasons[f"aten::{part}"] == f"aten::{operator} {TAKEN_APART}"


def test_one_that_is_left_float_says_no_such_thing():
    graph_module = quantised_around(F.silu)
    program = to_edge(torch.export.export(graph_module, image()), compile_config=EDGE).exported_program()
    reasons = reasons_in(program)
    assert TAKEN_APART not in "".join(reasons.values())
    assert "aten::mul" in reasons


#: Operators that are quantised as others, by name, and what they are in a float net.
LEFT_FLOAT = {
    "linear": ("addmm", torch.nn.Linear(8, 8)),
    "layer norm": ("native_layer_norm", torch.nn.LayerNorm(8)),
    "softmax": ("_softmax", torch.nn.Softmax(-1)),
}


@pytest.mark.parametrize(("part", "function"), LEFT_FLOAT.values(), ids=LEFT_FLOAT)
def test_what_a_user_left_float_is_said_not_to_be_quantised(part, function):
    """Stock says that no list has the operator, and our advice was to write it with others."""
    program = edge_program(quantised_around(function), image())
    assert plain(reasons_in(program)[f"aten::{part}"]) == "it is not quantised"


def test_what_no_profile_has_is_said_to_be_lowered_by_none():
    program = edge_program(quantised_around(torch.i0), image())
    assert plain(reasons_in(program)["aten::i0"]) == "the Arm backend cannot lower this operator"
