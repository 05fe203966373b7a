"""log1p of real floats is as precise as float32 allows, below 0 too, and stays delegated."""

import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from folding import edge_of, folded, passed
from lowering import lower, targets, tosa
from small import Lambda, qdq

from safe_arm import SafeArmPartitioner
from safe_arm.passes.decompose_log1p import DecomposeLog1pPass
from safe_arm.verification.reference_model import run_lowered

SPEC = tosa("TOSA-1.0+FP")
BELOW = torch.linspace(-0.999, 3, 4001)
TINY = torch.tensor([0.0, -0.0, 1e-20, -1e-20, 1e-7, -1e-7, 9e-4, -9e-4, 2e-3, -2e-3, 0.0999, -0.0999, 0.1001, -0.1001])
ENDS = torch.tensor([-1.0, -1.5, 1e10, torch.inf, -torch.inf, torch.nan])
ALL = torch.cat((BELOW, TINY, ENDS))


def lowered(partitioner):
    manager = lower(Lambda(lambda m, x: torch.log1p(x)), (ALL,), partitioner)
    return run_lowered(manager.exported_program(), (ALL,))[0]


def test_stock_is_wrong_below_0_and_ours_is_what_pytorch_gives():
    below = slice(len(BELOW))
    assert (lowered(TOSAPartitioner(SPEC))[below] - torch.log1p(BELOW)).abs().max() > 1
    partitioner = SafeArmPartitioner(SPEC, verify=False)
    given = lowered(partitioner)
    assert partitioner.report.fallbacks == ()
    assert [(each.correction, each.issue) for each in partitioner.report.applied] == [("precise-log1p", "S28")]
    # What float32 rounds of 1 + x.
    torch.testing.assert_close(given, torch.log1p(ALL.double()).float(), rtol=8e-7, atol=1e-38, equal_nan=True)


def test_near_misses_are_left_alone():
    """A logarithm of floats, and what becomes a table."""
    log = edge_of(torch.log, lambda x: torch.log(1 + x), inputs=(ALL,)).graph_module
    table = folded(Lambda(lambda m, x: qdq(qdq(x, 0.1, 3).log1p(), 0.1, 3)), (ALL,))
    for before in (log, table):
        assert targets(passed(DecomposeLog1pPass, before)) == targets(before)


def test_twice_equals_once():
    before = edge_of(torch.log1p, inputs=(ALL,)).graph_module
    assert "log1p" not in targets(passed(DecomposeLog1pPass, before))
