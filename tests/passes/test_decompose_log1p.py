"""log1p of real floats is as precise as float32 allows, below 0 too, and stays delegated."""

import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from folding import edge_of, folded, passed
from lowering import computed_by, corrected, targets, tosa
from small import Lambda, qdq

from safe_arm.passes.decompose_log1p import DecomposeLog1pPass

SPEC = tosa("TOSA-1.0+FP")
BELOW = torch.linspace(-0.999, 3, 4001)
TINY = torch.tensor([0.0, -0.0, 1e-20, -1e-20, 1e-7, -1e-7, 9e-4, -9e-4, 2e-3, -2e-3, 0.0999, -0.0999, 0.1001, -0.1001])
ENDS = torch.tensor([-1.0, -1.5, 1e10, torch.inf, -torch.inf, torch.nan])
ALL = torch.cat((BELOW, TINY, ENDS))


def test_stock_is_wrong_below_0_and_ours_is_what_pytorch_gives():
    net, below = Lambda(lambda m, x: torch.log1p(x)), slice(len(BELOW))
    (stock,) = computed_by(TOSAPartitioner(SPEC), net, (ALL,))
    assert (stock[below] - torch.log1p(BELOW)).abs().max() > 1
    (given,) = corrected("precise-log1p", "S28", net, (ALL,), SPEC)
    # What float32 rounds of 1 + x.
    torch.testing.assert_close(given, torch.log1p(ALL.double()).float(), rtol=8e-7, atol=1e-38, equal_nan=True)


def test_near_misses_are_left_alone_and_twice_equals_once():
    """Near misses are a logarithm of floats, and what becomes a table."""
    log = edge_of(torch.log, lambda x: torch.log(1 + x), inputs=(ALL,)).graph_module
    table = folded(Lambda(lambda m, x: qdq(qdq(x, 0.1, 3).log1p(), 0.1, 3)), (ALL,))
    for before in (log, table):
        assert targets(passed(DecomposeLog1pPass, before)) == targets(before)
    before = edge_of(torch.log1p, inputs=(ALL,)).graph_module
    assert "log1p" not in targets(passed(DecomposeLog1pPass, before))
