"""What is compared by properties is found where it is broken, and left alone where it is not."""

from types import SimpleNamespace

import pytest
import torch
from small import Built
from torch import nn

from safe_arm.quantizer import ordered_steps, safe_quantizers
from tools.fuzz import judging, properties, toolchain
from tools.fuzz.bad_input import CONFIGS, NETS, bad_case
from tools.fuzz.cases import Case, Config, Input, one_line
from tools.fuzz.toolchain import through_ours

CASE = Case("", (Input((1,)),), Config("INT"))


def made(**changed):
    return SimpleNamespace(case=CASE, undefined=False, **changed)


def applied(function):
    """Return a net of one function."""
    return Built(lambda net, x: function(x))


def same(x):
    return x


#: By what is prepared of a net: the net, and whether that is another one. Of 0 but for rounding nothing is asked.
PREPARED = {
    "the net": (same, same, False),
    "a hundredth more": (same, lambda x: x + 0.01, True),
    "a tenth of it 0": (same, lambda x: x * (x < 0.9), False),
    "a fifth of it 0": (same, lambda x: x * (x < 0.8), True),
    "a little of 0": (torch.zeros_like, lambda x: x * 1e-7, False),
    "much of 0": (torch.zeros_like, same, True),
}


@pytest.mark.parametrize("name", PREPARED)
def test_what_is_prepared_is_another_net(monkeypatch, name):
    net, given, apart = PREPARED[name]
    monkeypatch.setattr(properties, "nets", lambda case: {"forward": applied(net)})
    fresh = [(torch.linspace(0.005, 1.0, 200),)]
    assert bool(properties.as_given(made(references={"forward": applied(given)}, fresh=fresh))) is apart


class Counting(nn.Module):
    """What comes in plus how often it was called, in steps of ``step``."""

    def __init__(self, step):
        super().__init__()
        self.step = step
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(self.step)
        return x + self.calls


@pytest.mark.parametrize(("step", "apart"), [(1.0, False), (2.0, True)])
def test_a_state_is_compared_from_the_net_s_on(monkeypatch, step, apart):
    """Seed 13, case 7561: verification had called the graph, and its counter stood at 8."""
    called = Counting(step)
    called.calls.fill_(8.0)
    monkeypatch.setattr(properties, "nets", lambda case: {"forward": Counting(1.0)})
    looked_at = made(references={"forward": called}, fresh=[(torch.ones(8),), (torch.zeros(8),)])
    assert bool(properties.as_given(looked_at)) is apart
    assert called.calls == 8.0  # The graph itself stays as it is.


@pytest.mark.parametrize(
    ("write", "changed"),
    [("self.m0.bias.data.add_(1)", "m0.bias changed"), ("self.m1.add_(x0.mean())", "")],
    ids=["a weight", "its own state"],
)
def test_tensors_that_change_until_it_is_lowered(monkeypatch, write, changed):
    """A net that writes its state does so when it is run, not when it is lowered."""
    init = 'self.m0 = nn.Linear(2, 2); self.register_buffer("m1", torch.zeros(()))'
    case = Case(one_line("self.m0(x0) + self.m1.add_(x0.mean())", init), (Input((1, 2)),), Config("INT", "float"))
    if changed:
        lowered = toolchain.through

        def spoiled(made, modules, *classes):
            lowered(made, modules, *classes)
            next(iter(modules.values())).m0.bias.data.add_(1)

        monkeypatch.setattr(toolchain, "through", spoiled)
    _, whole = through_ours(case)
    assert properties.unchanged(whole) == changed


@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DoubtfulInputWarning")
@pytest.mark.changes_weights
def test_a_second_export_of_the_same_net(monkeypatch):
    source = one_line("torch.relu(self.m0(x0) * 4)", "self.m0 = nn.Conv2d(2, 2, 3)")
    outcome, whole = through_ours(Case(source, (Input((1, 2, 6, 6)),), Config("INT")))
    assert outcome.verdict == "right"
    assert properties.again(whole) == ""

    def write(model):
        with torch.no_grad():
            next(model.parameters()).mul_(2)

    monkeypatch.setattr(ordered_steps, "BEFORE_PASSES", (write,))
    with pytest.raises(safe_quantizers.InternalError, match="wrote into"):
        properties.again(whole)


#: NNSmith 294 of seed 8.
RESIZED = "F.interpolate(x0, (1, 10, 1), mode='trilinear')"
EQUAL_MAXIMA = one_line(f"torch.argmax({RESIZED}, 3), torch.acos({RESIZED})")


def test_what_executorch_alone_computes_is_right(monkeypatch):
    """Which of equal maxima comes first is a matter of rounding, and ExecuTorch alone rounds in its own way."""
    case = Case(EQUAL_MAXIMA, (Input((1, 47, 1, 1, 1)),), Config("INT+FP", policy="propagate"), 294)
    assert through_ours(case)[0].verdict == "right"
    monkeypatch.setattr(judging, "_same_alone", lambda *_: False)
    assert through_ours(case)[0].verdict == "wrong"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", NETS)
def test_a_fallback_with_a_reason_or_a_clear_error(name, config):
    outcome = properties.run(bad_case(name, config))
    assert outcome.verdict in ("right", "refused"), outcome
    if outcome.verdict == "refused":
        assert outcome.detail.startswith("UsageError: "), outcome
