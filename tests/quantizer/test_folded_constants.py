"""What depends on no input is computed before anything is quantised."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes, changes_once, graph_of
from lowering import PROFILES, codes_apart, lower, quantize, tosa
from small import Lambda

from safe_arm import SafeArmPartitioner
from safe_arm.quantizer import safe_quantizers
from safe_arm.quantizer.folded_constants import compute_constants

INPUTS = (torch.randn(2, 12, generator=torch.Generator().manual_seed(0)),)
RULES = {
    "positions": lambda m, x: x * (torch.arange(12) * 37 + 1000).float(),
    "mask": lambda m, x: torch.where(torch.arange(12) * 100 + 1 > torch.arange(2)[:, None] * 400, x, 0.0),
    "grid": lambda m, x: x + torch.linspace(0, 1000, 12).sin(),
}


def operators(graph_module):
    return {str(node.target).split(".")[0] for node in graph_module.graph.nodes if node.op == "call_function"}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", RULES)
def test_no_arithmetic_on_constants_is_quantised(name, profile):
    net = Lambda(RULES[name])
    quantised = quantize(net, INPUTS, tosa(profile))
    names = {str(node.target) for node in quantised.graph.nodes}
    assert not {"aten.arange.start_step", "aten.gt.Tensor", "aten.sin.default"} & names
    wanted = net(*INPUTS)
    assert float((quantised(*INPUTS) - wanted).abs().max()) <= 1.5 * float(wanted.max() - wanted.min()) / 255 * 2
    manager = lower(quantised, INPUTS, SafeArmPartitioner(tosa(profile)))
    assert codes_apart(manager, quantised, INPUTS) == 0


def test_the_watch_over_all_tests_sees_what_is_left(monkeypatch):
    monkeypatch.setattr(safe_quantizers, "_BEFORE_PASSES", ())
    with pytest.raises(AssertionError, match=r"arithmetic on constants is quantised: .*sin"):
        quantize(Lambda(RULES["grid"]), INPUTS, tosa(PROFILES[0]))


def test_stock_quantises_it():
    quantised = quantize(Lambda(RULES["grid"]), INPUTS, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer)
    wanted = Lambda(RULES["grid"])(*INPUTS)
    assert float((quantised(*INPUTS) - wanted).abs().max()) > 0.5


@pytest.mark.parametrize("name", RULES)
def test_the_float_graph_computes_the_net(name):
    model = graph_of(RULES[name], *INPUTS)
    assert changes(compute_constants, model)
    assert not {"aten.arange", "aten.linspace", "aten.sin"} & {
        str(node.target).rpartition(".")[0] for node in model.graph.nodes
    }
    torch.testing.assert_close(model(*INPUTS), RULES[name](None, *INPUTS))


@pytest.mark.parametrize(
    "rule", [lambda m, x: x + 1.0, lambda m, x: torch.rand(12) + x, lambda m, x: x + torch.zeros_like(x)]
)
def test_the_near_miss_is_left_alone(rule):
    assert not changes(compute_constants, graph_of(rule, *INPUTS))


def test_twice_equals_once():
    assert changes_once(compute_constants, graph_of(RULES["mask"], *INPUTS))
