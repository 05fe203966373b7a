"""The fuzzer sees what it is for: a stock bug is an outcome, whatever it does, and so would one of ours be."""

from functools import partial

import pytest
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import delegates, tosa

from safe_arm import SafeArmPartitioner
from tools.fuzz import judging, properties, toolchain
from tools.fuzz.building import exported, lowered, quantised
from tools.fuzz.cases import Case, Config, Input, one_line

pytestmark = pytest.mark.filterwarnings("ignore")
CONV = "self.m0 = nn.Conv2d(3, 4, 3)"
RELU = one_line("torch.cat((torch.relu(self.m0(x0)), x0[..., 1:-1, 1:-1]), 1)", CONV)
PLAIN = one_line("torch.sigmoid(self.m0(x0)) * 2", CONV)
IMAGE = (Input((1, 3, 6, 6)),)
#: The activation of an island that is not fuseable is lost (S1); the variance of one value divides by zero.
LOST = Case(RELU, IMAGE, Config("INT", "int8", "propagate"))
DYING = Case(one_line("torch.var(x0, 0)"), (Input((1, 4)),), Config("FP", "float"))
#: The scale is a 127th: in float32 the largest code is 1, in double a little less, and the cast drops that.
CAST = one_line("(-(x0.clip(-1.5, 1.0).ceil())).to(torch.int64)")
TRUNCATED = Case(CAST, (Input((1, 40)),), Config("INT+FP", "int8-127"))
#: PyTorch's remainder of -3 is -0, TOSA's 0.
SIGNED = one_line("torch.copysign(x0, F.silu(torch.remainder(x0.clamp(-3.0, 3.0), 0.5)))")
OF_ZERO = Case(SIGNED, (Input((4, 16), high=4.0),), Config("FP", "float"))
#: What a check refuses (U1).
UNSIGNED = Case(one_line("x0 + x0"), (Input((1, 4, 4, 4)),), Config("INT+FP", "uint8-io"))


def test_stock_is_wrong_or_dies_and_ours_is_right_or_falls_back():
    assert toolchain.through_stock(LOST).verdict == "wrong"
    outcome = properties.run(LOST)
    assert (outcome.verdict, outcome.delegates) == ("right", 1)
    assert toolchain.through_stock(DYING).verdict == "died"
    outcome = properties.run(DYING)
    assert outcome.verdict == "right"
    assert [op for op, _ in outcome.demoted] == ["aten::var"]


def test_what_pytorch_itself_gives_in_float32_is_right_and_the_sign_of_zero_is_either():
    assert properties.run(TRUNCATED).verdict == "right"
    assert properties.run(OF_ZERO).verdict == "right"


def test_what_is_off_is_right_only_if_nothing_was_lost_between_the_delegates():
    (_, made), (_, other) = (toolchain.through_ours(Case(PLAIN, IMAGE, seed=seed)) for seed in (0, 1))
    for of, verdict in ((made, "right"), (other, "wrong")):
        graph, program = made.graphs["forward"], of.programs["forward"]
        assert judging.judged(made.manager, "forward", graph, program, made.fresh, -1).verdict == verdict


def test_ours_without_its_corrections_is_an_outcome_too(monkeypatch):
    uncorrected = partial(SafeArmPartitioner, corrections=())
    monkeypatch.setattr(toolchain, "SafeArmPartitioner", lambda spec, **kw: uncorrected(spec, verify=False))
    assert properties.run(UNSIGNED).verdict == "wrong"
    monkeypatch.setattr(toolchain, "SafeArmPartitioner", lambda spec, **kw: SafeArmPartitioner(spec, preflight=False))
    outcome = properties.run(DYING)
    assert (outcome.verdict, outcome.stage) == ("died", "lower"), outcome


def test_pytorch_s_own_failure_is_nobody_s():
    assert properties.run(Case(one_line("x0.reshape(7)"), (Input((3,)),))).verdict == "invalid"


def test_stock_in_less_time_gives_the_same_bytes():
    case = Case(PLAIN, IMAGE)
    made, modules = toolchain.built(case)
    graph, _ = quantised(case, modules["forward"], made.calibration, toolchain.TOSAQuantizer)
    program = {"forward": exported(case, graph, made.calibration[0])}
    plain = delegates(lowered(program, TOSAPartitioner(tosa(case.config.spec))))
    with toolchain.quick():
        assert delegates(lowered(program, TOSAPartitioner(tosa(case.config.spec)))) == plain != []


@pytest.mark.parametrize("config", ["int8", "int8-tensor", "int8-127", "a16w8", "a8w4", "uint8-io", "float"])
def test_every_kind_of_numbers(config):
    profile = "INT+FP" if config == "float" else "INT"
    outcome = properties.run(Case(PLAIN, IMAGE, Config(profile, config, methods=2, properties=tuple(properties.EXTRA))))
    assert (outcome.verdict, outcome.fallbacks) == ("right", {}), outcome
