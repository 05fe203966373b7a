"""A quantised program gives its host the dtypes and ranks that the float one does."""

from functools import partial

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes, changes_once, graph_of
from lowering import PROFILES, lower, quantize, tosa
from small import Lambda
from torch.utils._pytree import tree_leaves

from safe_arm import SafeArmPartitioner
from safe_arm.quantizer.proof.kept_outputs import restore_outputs, values_of_outputs
from safe_arm.verification.reference_model import run_lowered

INPUTS = (torch.linspace(-3, 3, 15).view(3, 5),)
RULES = {
    "cast": lambda m, x: (x * 20).to(torch.int64),
    "comparison": lambda m, x: (x > 0).long(),
    "twice an index": lambda m, x: torch.max(x, 1)[1] - 1,
    "double": lambda m, x: x.softmax(1, dtype=torch.float64),
    "sign of a sum": lambda m, x: x.sum().sign(),
    "logit of a mean": lambda m, x: torch.logit((x + 4).mean() / 10),
    "in a dictionary": lambda m, x: {"mask": (x > 0).long(), "x": (x * 2, x.relu())},
}


def alike(given, wanted):
    given, wanted = ([(each.dtype, each.shape) for each in tree_leaves(values)] for values in (given, wanted))
    return given == wanted


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_stock_gives_others(rule):
    graph_module = quantize(Lambda(rule), INPUTS, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer)
    assert not alike(graph_module(*INPUTS), rule(None, *INPUTS))


# In INT+FP stock's InsertRescaleInt32Pass raises on a difference of int32, which is demoted.
@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_ours_gives_the_net_s_and_its_values(rule, profile):
    graph_module = quantize(Lambda(rule), INPUTS, tosa(profile))
    given, wanted = graph_module(*INPUTS), rule(None, *INPUTS)
    assert alike(given, wanted)
    manager = lower(graph_module, INPUTS, SafeArmPartitioner(tosa(profile)))
    lowered = run_lowered(manager.exported_program(), INPUTS)
    torch.testing.assert_close(list(lowered), tree_leaves(given), rtol=0, atol=0)


@pytest.mark.parametrize("rule", [lambda m, x: (x * 2, x.argmax(1)), lambda m, x: x.relu().sum()])
def test_outputs_that_are_as_they_were_are_left_alone(rule):
    model = graph_of(rule, *INPUTS)
    assert not changes(partial(restore_outputs, before=values_of_outputs(model)), model)


def test_an_integer_beside_the_tensors_is_passed_on():
    net = Lambda(lambda m, x: (x * 2, 3, None))
    assert quantize(net, INPUTS, tosa(PROFILES[0]))(*INPUTS)[1:] == (3, None)


def test_twice_equals_once():
    model = graph_of(RULES["cast"], *INPUTS)
    before = values_of_outputs(model)
    cast = model.graph.find_nodes(op="call_function", target=torch.ops.aten.to.dtype)[0]
    cast.update_arg(1, torch.int32)
    cast.meta["val"] = cast.meta["val"].to(torch.int32)
    model.recompile()
    assert changes_once(partial(restore_outputs, before=before), model)
    assert model(*INPUTS).dtype == torch.int64
