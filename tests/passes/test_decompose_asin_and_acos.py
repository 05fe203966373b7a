"""asin and acos of real floats are as precise as float32 is."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from folding import computed, edge_of, folded, passed
from lowering import computed_by, corrected, targets, tosa
from small import Lambda, qdq

from safe_arm.passes.decompose_asin_and_acos import DecomposeAsinAndAcosPass

SPEC = tosa("TOSA-1.0+FP")
FUNCTIONS = (torch.asin, torch.acos)
#: With the values where the branches meet.
VALUES = torch.cat((torch.linspace(-1, 1, 201), torch.tensor([-1.0, -0.5, -0.0, 0.0, 0.5, 0.50000006, 1.0])))


def distance(function, given):
    return float((given.double() - function(VALUES.double())).abs().max())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_stock_is_a_thousandth_off_and_ours_as_precise_as_float32(function):
    net = Lambda(lambda m, x: function(x))
    assert 1e-3 < distance(function, *computed_by(TOSAPartitioner(SPEC), net, (VALUES,))) < 2e-3
    assert distance(function, *corrected("precise-arcsine", "S24", net, (VALUES,), SPEC)) < 4e-7


def test_the_near_miss_a_table_is_stock_s_and_twice_equals_once():
    net = Lambda(lambda m, x: [qdq(function(qdq(x, 0.01, 3)), 0.02, 0) for function in FUNCTIONS])
    before = folded(net, (VALUES,))
    assert targets(passed(DecomposeAsinAndAcosPass, before)) == targets(before)
    program = edge_of(*FUNCTIONS, inputs=(VALUES,))
    once = passed(DecomposeAsinAndAcosPass, program.graph_module)
    assert not {"asin", "acos"} & {*targets(once)}
    assert max(map(distance, FUNCTIONS, computed(program, once, VALUES))) < 4e-7
