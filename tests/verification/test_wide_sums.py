"""How near to a tie the 31 bits that are kept of a sum bring a value: from weights, steps and terms."""

import pytest
import torch
from long_sums import LongSum
from proving import delegates_of
from small import mark_quantised

from safe_arm.core.programs import placeholder_values
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
    x, y = torch.zeros(1, 1, 4096), torch.zeros(1, 4096, 1)
    inputs = (x.mT if op == "convolution" else x, y)
    graph_module = mark_quantised(torch.export.export(LongSum(op), inputs).module())
    (delegate,) = delegates_of(graph_module, inputs, "TOSA-1.0+INT+int16")
    codes = [value.to(torch.int16) for value in inputs][: len(delegate.program.graph_signature.user_inputs)]
    evaluation = Evaluation(placeholder_values(delegate.program, delegate.state, codes))
    nodes = [node for node in delegate.program.graph.nodes if node.op == "call_function"]
    evaluation.run(nodes)
    assert slack(nodes, evaluation) == HALF[op]
    assert slack(nodes[:1], evaluation) == 0
