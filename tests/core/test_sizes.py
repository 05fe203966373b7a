"""Looking at a dynamic size does not fix it: the shape environment's guards are the same before and after."""

import pytest
import torch
from small import Built
from torch import nn
from torch.export import Dim, export

from safe_arm.core.island import call_functions
from safe_arm.core.macs import macs
from safe_arm.core.sizes import example_size


@pytest.fixture(scope="module")
def program():
    shapes = {"input": {0: Dim("b", min=2, max=9), 2: Dim("h", min=4, max=64)}}
    layers = nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 2, 2), nn.Linear(7, 5)
    return export(nn.Sequential(*layers).eval(), (torch.rand(3, 3, 10, 8),), dynamic_shapes=shapes)


def guards(program):
    """What is known of the sizes: guards, and each symbol's range and replacement."""
    values = [node.meta["val"] for node in program.graph.nodes if node.op == "call_function"]
    env = next(size.node.shape_env for value in values for size in value.shape if isinstance(size, torch.SymInt))
    return [str(guard.expr) for guard in env.guards], dict(env.var_to_range), dict(env.replacements)


def test_macs_are_those_of_the_example_and_nothing_is_specialised(program):
    before = guards(program)
    conv, up, linear = (node for node in call_functions(program.graph_module) if macs(node))
    assert macs(conv) == (3 * 4 * 8 * 6) * 3 * 9
    assert macs(up) == (3 * 4 * 8 * 6) * 2 * 4
    assert macs(linear) == (3 * 2 * 9 * 5) * 7
    assert guards(program) == before
    shape = linear.meta["val"].shape
    assert [example_size(size) for size in shape] == [3, 2, 9, 5]
    assert [isinstance(size, torch.SymInt) for size in shape] == [True, False, True, False]
    assert guards(program) == before


def test_a_size_that_depends_on_data_has_no_example():
    net = Built(lambda m, x: m.linear(torch.nonzero(x).to(x.dtype)), linear=nn.Linear(2, 3))
    found = export(net.eval(), (torch.eye(4),))
    linear = next(node for node in call_functions(found.graph_module) if "linear" in str(node.target))
    with pytest.raises(ValueError, match=r"the size u\d+ depends on data"):
        example_size(linear.meta["val"].shape[0])
    assert macs(linear) == 0
