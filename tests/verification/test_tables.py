"""How far a value that is read from tables may be from them."""

import pytest
import torch
import torch.nn.functional as F
from lowering import WIDE
from ratios import quantised
from stubborn import quantizer_of

from safe_arm.core.island import QUANTIZE, is_dequantize, op_name
from safe_arm.verification.evaluation import Evaluation
from safe_arm.verification.tables import interpolated

#: By name, an operator, a rule with it, the size of its values, and the codes that its tables may be off.
FUNCTIONS = {
    "one table, no entry of which is at a tie": ("aten::tanh", torch.tanh, 1.0, 0.0),
    "a sum of tables": ("aten::rsqrt", lambda x: torch.rsqrt(x.abs() + 1e-2), 1.0, 1.0),
    "half a table, doubled": ("aten::gelu", lambda x: F.gelu(x) * 3, 0.1, 2.0),
}


def unit_of(graph_module, name):
    """A function with its quantisation on either side."""
    (kernel,) = [node for node in graph_module.graph.nodes if op_name(node) == name]
    (before,), (after,) = kernel.all_input_nodes, kernel.users
    assert is_dequantize(before)
    assert op_name(after) == QUANTIZE
    return before, kernel, after


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_bound_is_what_ties_of_the_entries_can_move(name):
    operator, function, size, bound = FUNCTIONS[name]
    draw = torch.Generator().manual_seed(0)
    samples = [(size * torch.randn(4, 64, generator=draw),) for _ in range(6)]
    quantizer = quantizer_of(profile="TOSA-1.0+INT+int16", config=WIDE)
    graph_module = quantised(lambda m, x: function(x), quantizer, samples)
    unit = unit_of(graph_module, operator)
    codes = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    (lines,) = interpolated(unit, Evaluation({unit[0].args[0]: codes})).values()
    assert float(lines.off.max()) == bound
