"""Two hundred nets that are right, and those of benchmarks/proof_nets.py: verification demotes nothing of them."""

import pytest
import torch
from corpus_modes import MODES, mode_of, quantised
from corpus_nets import corpus_net
from lowering import lower_safely, output_steps, tosa
from proving import quantized

from benchmarks.proof_nets import NETS
from safe_arm.verification.evaluation import evaluated
from safe_arm.verification.reference_model import run_lowered

pytestmark = [pytest.mark.proof, pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")]

#: How far the outputs of a net that is right may be off: values in the middle between two codes may go to either, and
#: what comes after spreads that. Floats in parts of 1e-5 of the largest.
LIMITS = {torch.int8: 6, torch.int16: 64, None: 10}


def lowered(graph_module, corpus, mode):
    profile, _, policy = MODES[mode]
    options = {"non_fuseable": policy, "verify": True}
    manager, partitioner = lower_safely(graph_module, corpus.samples[0], tosa(profile), **options)
    return manager, partitioner.report


def apart(manager, graph_module, corpus):
    """How far the lowered program is from the graph in double on inputs nobody has seen: codes, or 1e-5 of the size.

    Ties go to the even code or up, whichever is nearer: an average of four codes often is one.
    """
    program = torch.export.export(graph_module, corpus.samples[0])
    state = {**program.state_dict, **program.constants}
    outputs = program.graph.output_node().args[0]
    steps = output_steps(program.module(check_guards=False))
    worst = 0.0
    for inputs in corpus.fresh:
        given = run_lowered(manager.exported_program(), inputs)
        ways = (evaluated(program, state, inputs, ties_up=up).values for up in (False, True))
        worst = max(worst, min(_worst(given, [values[node] for node in outputs], steps) for values in ways))
    return worst


def _worst(given, wanted, steps):
    apart = 0.0
    for actual, expected, step in zip(given, wanted, steps, strict=True):
        unit = step if step != 1.0 else float(expected.abs().max()) * 1e-5
        apart = max(apart, float(((actual - expected).abs() / unit).max()))
    return apart


@pytest.mark.parametrize("number", range(200), ids=lambda number: f"{corpus_net(number).name}-{mode_of(number)}")
def test_nothing_that_is_right_is_demoted(number):
    corpus, mode = corpus_net(number), mode_of(number)
    graph_module = quantised(corpus, mode)
    manager, report = lowered(graph_module, corpus, mode)
    blamed = [f"{v.op}: {v.reason}" for v in report.demoted if v.stage == "verify"]
    assert all(each.verified for each in report.verifications), report.verifications
    limit = LIMITS[None if mode == "FP" else torch.int16 if mode.endswith("a16w8") else torch.int8]
    assert blamed == []
    assert apart(manager, graph_module, corpus) <= limit, "not known to be right"


@pytest.mark.parametrize("profile", ["INT", "INT+FP", "INT+int16", "INT+FP+int16"])
@pytest.mark.parametrize("name", NETS)
def test_every_delegate_is_verified_and_nothing_demoted(name, profile):
    (net, inputs), spec, wide = NETS[name](), tosa(f"TOSA-1.0+{profile}"), profile.endswith("int16")
    graph_module = quantized(net, inputs, f"TOSA-1.0+{profile}", wide=wide)
    report = lower_safely(graph_module, inputs, spec, non_fuseable="propagate", verify=True)[1].report
    assert report.demoted == ()
    assert report.verifications
    assert all(each.verified for each in report.verifications), report.verifications
    assert wide or {each.worst for each in report.verifications} == {0}, "int8 is exact"
