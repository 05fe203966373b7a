"""Delegates with control flow inside are proven like others: the reference model runs their further regions."""

import functools

import pytest
import torch
from lowering import tosa
from proving import delegates_of, quantized
from small import Built, image

from safe_arm.quantizer import safe_quantizers
from safe_arm.verification.evaluation import MOST_TURNS, EndlessLoopError, evaluated
from safe_arm.verification.proof import prove
from safe_arm.verification.reference_model import run_tosa
from safe_arm.verification.stimuli import Stimulus, stimuli
from safe_arm.verification.taps import regions

WHILE = torch.ops.higher_order.while_loop


def shrinking(factor):
    """A loop that ends when the sum is at most 2."""

    def goes_on(t):
        return torch.gt(torch.sum(t), torch.full((1,), 2.0)).squeeze()

    return Built(lambda m, x: WHILE(goes_on, lambda t: (torch.mul(t, torch.full((1,), factor)),), (x,), ())[0])


def choice():
    """One of two convolutions, by the sign of a sum."""
    torch.manual_seed(0)
    one, other = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.Conv2d(3, 4, 1)
    return Built(lambda m, x: torch.cond(torch.sum(x) > 0, m.one, m.other, (x,)), one=one, other=other)


def integer_choice(m, x, y):
    """A sum or a difference of integers: calibration cannot look into the branches of a condition."""
    return torch.cond(torch.amax(x) > torch.amax(y), lambda a, b: (a + b,), lambda a, b: (a - b,), (x, y))[0]


def endless(m, x):
    """Doubles until the sum of the absolute values reaches 16; zeros never do."""
    return WHILE(lambda t: torch.sum(torch.abs(t)) < 16, lambda t: (t * 2,), (x,), ())[0]


def _random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


NETS = {
    "cond-FP": (choice(), (_random(1, 3, 8, 8),), "TOSA-1.0+FP+cf"),
    "cond-INT": (Built(integer_choice), (torch.ones((2, 2), dtype=torch.int32),) * 2, "TOSA-1.0+INT+cf"),
    "loop-FP": (shrinking(0.5), (9 * _random(2, 2).abs(),), "TOSA-1.0+FP+cf"),
    "loop-INT": (shrinking(0.5), (9 * _random(2, 2).abs(),), "TOSA-1.0+INT+cf"),
    # Never to half of a code exactly, which may be rounded either way.
    "loop-two-domains": (shrinking(0.6931), (image()[0] + 0.3,), "TOSA-1.0+INT+cf"),
    "endless": (Built(endless), (torch.ones(2, 2),), "TOSA-1.0+FP+cf"),
}


@functools.cache
def delegate_of(name):
    """What our partitioner makes of a net, which is what stock makes of it; not yet proven."""
    net, inputs, profile = NETS[name]
    floats = name not in ("loop-INT", "loop-two-domains")
    # Of two samples one alone gets into the loop, so that its body has a domain of its own.
    more = [(inputs[0] - 0.6,)] if name == "loop-two-domains" else ()
    with pytest.MonkeyPatch.context() as patch:
        # As stock's quantiser leaves a loop: its body has domains of its own.
        patch.setattr(safe_quantizers, "share_domains_of_branches", lambda model: None)
        graph_module = net.eval() if floats else quantized(net.eval(), inputs, profile, more=more)
    (delegate,) = delegates_of(graph_module, inputs, profile)
    return delegate


@pytest.fixture(autouse=True)
def _control_flow_is_known():
    try:
        tosa("TOSA-1.0+FP+cf")
    except ValueError:
        pytest.skip("this ExecuTorch knows no control flow")


@pytest.mark.parametrize("name", [name for name in NETS if name not in ("endless", "loop-two-domains")])
def test_it_is_proven(name):
    delegate = delegate_of(name)
    assert len(list(regions(delegate.flatbuffer))) == 3
    proof = prove(delegate)
    assert (proof.verified, proof.worst, proof.tried, proof.reason) == (True, 0.0, 6, "")


@pytest.mark.parametrize(("name", "node"), [("cond-INT", "cond"), ("loop-INT", "while_loop")])
def test_a_fault_in_it_is_found(name, node):
    def off_by_one(flatbuffer, inputs):
        outputs = run_tosa(flatbuffer, inputs)
        outputs[-1].reshape(-1)[1] += 1
        return outputs

    proof = prove(delegate_of(name), runner=off_by_one)
    assert proof.wrong
    assert node in {name for culprit in proof.culprits for name in culprit.names}


def test_a_loop_that_rounds_once_more_each_turn_is_found_where_it_keeps_going():
    """Balanced random inputs end it in its first turn (S40)."""
    delegate = delegate_of("loop-two-domains")
    proof = prove(delegate)
    assert proof.wrong
    assert "1 code" in proof.reason
    assert "(random, higher)" in proof.reason
    balanced = (each for each in stimuli(delegate.program) if each.name == "random")
    assert prove(delegate, balanced, most=1).verified


def test_ties_inside_control_flow_count_as_they_are_in_the_graph_a_user_runs():
    """A loop that halves codes meets a tie in each turn; which way it goes is not looked for inside."""
    delegate = delegate_of("loop-INT")
    proof = prove(delegate)
    apart = 0
    for stimulus in stimuli(delegate.program):
        to_even = evaluated(delegate.program, delegate.state, stimulus.inputs, branches_up=False)
        ties_up = evaluated(delegate.program, delegate.state, stimulus.inputs)
        (output,) = delegate.outputs
        off = to_even.values[output].double() - ties_up.values[output].double()
        apart = max(apart, int(off.abs().max()))
    assert apart > 0
    assert (proof.verified, proof.apart_worst, proof.ties) == (True, apart, ())


def test_inputs_on_which_a_loop_never_ends_are_not_tried():
    delegate = delegate_of("endless")
    with pytest.raises(EndlessLoopError, match=f"its loop does not end within {MOST_TURNS} turns"):
        evaluated(delegate.program, delegate.state, (torch.zeros(2, 2),))
    proof = prove(delegate)
    assert (proof.verified, proof.tried) == (True, 5)
    zeros = Stimulus("zeros", (torch.zeros(2, 2),))
    proof = prove(delegate, [zeros], most=1)
    assert (proof.verified, proof.wrong, proof.tried) == (False, False, 0)
    assert proof.reason == f"not verified: its loop does not end within {MOST_TURNS} turns"
