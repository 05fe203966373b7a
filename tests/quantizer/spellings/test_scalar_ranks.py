"""What is computed of a scalar and a number is a scalar, when the graph is made ready for quantisation too."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, RELEASE, codes_apart, lower, quantize, tosa
from rewriting import Rewriting
from small import Lambda
from stubborn import exported, transformed

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm.core.attributes import attribute
from safe_arm.quantizer.spellings.scalar_ranks import keep_scalar_ranks

SCALAR, VECTOR = (torch.tensor(0.75),), (torch.tensor([0.75]),)
#: A mean, times or compared with a number.
RULES = {
    "add": lambda m, x: x + 0.5,
    "sub": lambda m, x: x - 0.5,
    "mul": lambda m, x: x * 2,
    "multiple": lambda m, x: torch.add(x, x, alpha=0.5),
    "multiple_less": lambda m, x: torch.sub(x, 0.25, alpha=3),
    "div": lambda m, x: x / 3.0,
    "rsub": lambda m, x: 2.0 - x,
    "floor_divide": lambda m, x: torch.floor_divide(x, 0.5),
    "trunc": lambda m, x: torch.div(x, 0.5, rounding_mode="trunc"),
    "gt": lambda m, x: torch.where(x > 0.5, x, -x),
    "prelu": lambda m, x: F.prelu(-x, torch.full((1,), 0.2)),
    "ne": lambda m, x: torch.where(x != 0.5, x, -x),
}


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "prelu" or RELEASE >= (1, 5)])
def test_stock_makes_a_vector_of_it(rule):
    assert transformed(Lambda(RULES[rule]), TOSAQuantizer, SCALAR)(*SCALAR).shape == (1,)


@pytest.mark.parametrize("rule", RULES)
def test_ours_keeps_its_shape_and_value(rule):
    graph_module = transformed(Lambda(RULES[rule]), SafeTOSAQuantizer, SCALAR)
    values = [node.meta["val"] for node in graph_module.graph.nodes if node.op == "call_function"]
    if rule != "prelu":  # Its weight is a vector.
        assert not any(value.dim() for value in values), "an output gets its shape back, whatever is between"
    given = graph_module(*SCALAR)
    assert given.shape == ()
    assert torch.allclose(given, RULES[rule](None, *SCALAR))


@pytest.mark.parametrize("rule", RULES)
def test_the_delegate_computes_the_quantised_graph(rule, profile):
    graph_module = quantize(Lambda(RULES[rule]), SCALAR, tosa(profile))
    manager = lower(graph_module, SCALAR, SafeArmPartitioner(tosa(profile)))
    assert graph_module(*SCALAR).shape == ()
    assert codes_apart(manager, graph_module, SCALAR, (torch.tensor(-0.3),)) == 0


@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
def test_scalars_are_stacked_along_the_dimension_that_is_asked_for():
    """In a delegate stock's passes make vectors of them again: the stack is demoted."""
    net = Lambda(lambda m, x: torch.stack((x * 2, x)))
    graph_module = quantize(net, SCALAR, tosa(PROFILES[0]))
    manager = lower(graph_module, SCALAR, SafeArmPartitioner(tosa(PROFILES[0])))
    assert graph_module(*SCALAR).shape == (2,)
    assert codes_apart(manager, graph_module, SCALAR) == 0


class TestRanks(Rewriting):
    step = staticmethod(keep_scalar_ranks)
    written: ClassVar = {name: (rule, SCALAR) for name, rule in RULES.items()}
    kept: ClassVar = {
        **{f"{name} of a vector": (rule, VECTOR) for name, rule in RULES.items()},
        "an integer": (lambda m, x: x + 1, (torch.tensor(3),)),
        "a multiple of an integer": (lambda m, x: torch.add(x, x.to(torch.int32), alpha=0.5), SCALAR),
    }

    def case(self, row):
        rule, inputs = row
        return Lambda(rule), inputs


def inner(x):
    return torch.cond(x.sum() > 4, lambda x: x * 0.5, torch.sigmoid, (x,))


def test_a_branch_in_a_branch_keeps_its_constants_and_is_quantised():
    """In either a sum is compared with a number."""
    net, inputs = Lambda(lambda m, x: torch.cond(x.sum() > 1, inner, torch.relu, (x,))), (torch.ones(2, 3),)
    model = exported(net, inputs)
    keep_scalar_ranks(model)
    branches = [each for each in model.modules() if isinstance(each, torch.fx.GraphModule)]
    read = [(m, node.target) for m in branches for node in m.graph.find_nodes(op="get_attr")]
    assert all(attribute(*each) is not None for each in read)
    assert torch.equal(model(*inputs), inputs[0] * 0.5)
    assert quantize(net, inputs, tosa(PROFILES[0]))(*inputs).shape == (2, 3)
