"""How near to a tie the 31 bits that are kept of a sum bring a value: from weights, steps and terms."""

import pytest
import torch
from long_sums import long_sum

from safe_arm.core.programs import placeholder_values
from safe_arm.verification.delegate import user_inputs
from safe_arm.verification.evaluation import Evaluation
from safe_arm.verification.wide_sums import slack

#: Half of the last bit, in codes of the output: B / 2**31, where B is the sum's bound in those codes.
HALF = {
    "bmm": 4096 * 2.0**30 / 2**20 / 2**31,
    "linear": (4095 * 127 + 60) * 2.0**15 / 2**11 / 2**31,
    "convolution": (4095 * 127 + 60) * 2.0**15 / 2**11 / 2**31,
}


@pytest.mark.parametrize("op", HALF)
def test_half_of_the_last_bit_kept(op):
    delegate = long_sum(op)
    codes = [torch.zeros(node.meta["val"].shape, dtype=torch.int16) for node in user_inputs(delegate.program)]
    evaluation = Evaluation(placeholder_values(delegate.program, delegate.state, codes))
    nodes = [node for node in delegate.program.graph.nodes if node.op == "call_function"]
    evaluation.run(nodes)
    assert slack(nodes, evaluation) == HALF[op]
    assert slack(nodes[:1], evaluation) == 0
