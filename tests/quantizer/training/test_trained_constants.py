"""What a net computes of its parameters alone is trained."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from lowering import PROFILES, targets, tosa
from small import Built
from spelled import check_one_exact
from spying import doubts
from stubborn import exported, prepare, trainable
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.training.trained_constants import is_for_training, store_trained_values

SEQUENCE = (torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0)),)
IMAGE = (torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0)),)


def parameter(*shape):
    return nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))))


def linear():
    torch.manual_seed(0)
    return nn.Linear(8, 8)


def conv():
    torch.manual_seed(0)
    return nn.Conv2d(4, 8, 3)


#: By name, a rule, its layers and its example input.
COMPUTED = {
    "a part of an embedding": (lambda m, x: m.l(x + m.p[:, :5]), {"l": linear(), "p": parameter(1, 9, 8)}, SEQUENCE),
    "gains": (lambda m, x: m.l(x) * m.g.sigmoid(), {"l": linear(), "g": parameter(8)}, SEQUENCE),
    "a transposed weight": (lambda m, x: x @ m.w.t(), {"w": parameter(8, 8)}, SEQUENCE),
    "parts of a weight": (lambda m, x: F.linear(x, m.w[:4]) + F.linear(x, m.w[4:]), {"w": parameter(8, 8)}, SEQUENCE),
    "rows of length 1": (lambda m, x: F.linear(x, F.normalize(m.w)), {"w": parameter(8, 8)}, SEQUENCE),
    "a weight and its norms": (lambda m, x: m.c(x).relu(), {"c": weight_norm(conv())}, IMAGE),
}
#: Each is read where its values are repeated, or several times.
SHARED = {
    "expanded": (lambda m, x: torch.cat((m.p.expand(2, -1, -1), x), 1), {"p": parameter(1, 1, 8)}, SEQUENCE),
    "tied": (lambda m, x: F.linear(F.linear(x, m.p), m.p.t()), {"p": parameter(8, 8)}, SEQUENCE),
    "looked up": (lambda m, x: x + m.p[torch.tensor([0, 1, 1, 2, 0])], {"p": parameter(3, 8)}, SEQUENCE),
}
#: Parameters that nothing but operators on inputs reads, or that are part of a layer's weight.
PLAIN = {
    "read as it is": (lambda m, x: m.l(x) * m.g, {"l": linear(), "g": parameter(8)}, SEQUENCE),
    "a scaled layer": (lambda m, x: m.c(x) * m.g.view(8, 1, 1), {"c": conv(), "g": parameter(8)}, IMAGE),
}
TABLES = {**COMPUTED, **SHARED, **PLAIN}


def prepared(quantizer_class, name):
    """A net that is prepared for training, after a step backward, and what was said of it."""
    rule, layers, inputs = TABLES[name]
    model, said = doubts(trainable, Built(rule, **layers).train(), inputs, quantizer_class)
    result = model(*inputs)
    if result.requires_grad:
        result.square().sum().backward()
    return model, said


def trained_elements(model):
    return sum(each.numel() for each in model.parameters() if each.grad is not None)


def elements(name):
    return sum(each.numel() for layer in TABLES[name][1].values() for each in _parameters(layer))


def _parameters(layer):
    return [layer] if isinstance(layer, nn.Parameter) else list(layer.parameters())


@pytest.mark.parametrize("name", COMPUTED)
def test_stock_leaves_it_untrained_and_ours_trains_it(name):
    stock, _ = prepared(TOSAQuantizer, name)
    ours, said = prepared(SafeTOSAQuantizer, name)
    assert trained_elements(stock) < trained_elements(ours) <= elements(name)
    assert said == []


@pytest.mark.parametrize("name", COMPUTED)
def test_a_step_of_training_reaches_the_one_exact_delegate(name):
    inputs = TABLES[name][2]
    model, _ = prepared(SafeTOSAQuantizer, name)
    before = model(*inputs)
    stored = [each for key, each in model.named_parameters() if "trained_" in key]
    assert stored
    torch.optim.SGD(stored, 0.01).step()
    after = model(*inputs)
    assert not torch.equal(before, after)
    graph_module = convert_pt2e(model)
    step = float((after.max() - after.min()) / 255)
    assert float((graph_module(*inputs) - after).abs().max()) <= 2 * step
    check_one_exact(graph_module, inputs, tosa(PROFILES[0]))


def test_one_kind_of_layer_that_is_trained_is_enough():
    rule, layers, inputs = COMPUTED["gains"]
    quantizer = SafeTOSAQuantizer(tosa(PROFILES[0]))
    quantizer.set_module_type(nn.Linear, get_symmetric_quantization_config(is_qat=True))
    model = prepare(Built(rule, **layers).train(), quantizer, inputs, is_qat=True)
    assert [key for key, _ in model.named_parameters() if key.startswith("trained_")]


@pytest.mark.parametrize("name", SHARED)
def test_what_is_read_several_times_is_left_alone_and_said(name):
    ours, said = prepared(SafeTOSAQuantizer, name)
    assert [key for key, _ in ours.named_parameters() if key.startswith("trained_")] == []
    (message,) = said
    assert message.startswith("parameter 'p' is not trained")


@pytest.mark.parametrize("name", PLAIN)
def test_the_near_miss_is_left_alone_and_nothing_is_said(name):
    ours, said = prepared(SafeTOSAQuantizer, name)
    assert said == []
    assert [key for key, _ in ours.named_parameters() if key.startswith("trained_")] == []


def test_calibration_is_as_it_was_and_twice_equals_once():
    rule, layers, inputs = COMPUTED["gains"]
    calibrated = get_symmetric_quantization_config()
    training = get_symmetric_quantization_config(is_qat=True)
    assert is_for_training(training)
    assert not is_for_training(calibrated)
    assert not is_for_training(None)
    model = exported(Built(rule, **layers), inputs)
    before = targets(model)
    assert store_trained_values(model, calibrated).values == {}
    assert targets(model) == before
    assert list(store_trained_values(model, training).values) == ["computed of g"]
    assert store_trained_values(model, training).values == {}
