"""What calibration writes into state is not where the quantised program begins."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from stubborn import quantizer_of

from safe_arm import SafeTOSAQuantizer, SafeVgfQuantizer
from safe_arm.quantizer.state_at_rest import state_at_rest

SAMPLES = [(torch.full((1, 4, 2, 2), value),) for value in (1.0, -0.5, 0.75)]
START = torch.linspace(-0.5, 0.5, 16).view(1, 4, 2, 2)


class Summed(torch.nn.Module):
    """A running sum, and a constant beside it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", START.clone())
        self.register_buffer("shift", torch.full((1, 4, 1, 1), 0.25))

    def forward(self, x):
        self.total.mul_(0.5).add_(x)
        return self.total + self.shift


class Assigned(Summed):
    def forward(self, x):
        self.total = self.total * 0.5 + x
        return self.total + self.shift


def exported(net):
    return torch.export.export(net, SAMPLES[0]).module(check_guards=False)


def quantised(net, quantizer_class, name):
    quantizer = quantizer_of(quantizer_class)
    run = getattr(quantizer, name, None) or quantizer.quantize_with_submodules
    return run(exported(net), SAMPLES)


def test_stock_begins_where_calibration_ended():
    state = quantised(Assigned(), TOSAQuantizer, "_quantize_with_submodules").get_buffer("total")
    assert (state - START).abs().max() > 0.5


@pytest.mark.parametrize("name", ["quantize_with_submodules", "_quantize_with_submodules"])
@pytest.mark.parametrize("quantizer_class", [SafeTOSAQuantizer, SafeVgfQuantizer])
@pytest.mark.parametrize("net", [Summed, Assigned])
def test_ours_begins_where_the_net_does(net, quantizer_class, name):
    graph_module = quantised(net(), quantizer_class, name)
    assert torch.equal(graph_module.get_buffer("total"), START)
    assert (graph_module(*SAMPLES[0]) - net()(*SAMPLES[0])).abs().max() < 0.02


def test_what_a_graph_does_not_copy_into_stays_as_it_was_learnt():
    model = exported(torch.nn.BatchNorm2d(4).train())
    with state_at_rest(model) as graph_modules:
        model(torch.ones(1, 4, 2, 2))
        learnt = model.get_buffer("running_mean").clone()
        graph_modules.append(model)
    assert learnt.abs().max() > 0
    assert torch.equal(model.get_buffer("running_mean"), learnt)


def test_twice_equals_once():
    model = exported(Assigned())
    with state_at_rest(model) as once:
        model(*SAMPLES[0])
        once.append(model)
    assert torch.equal(model.get_buffer("total"), START)
    with state_at_rest(model) as twice:
        twice.append(model)
    assert torch.equal(model.get_buffer("total"), START)
