"""Values that share a domain in quantisation-aware training keep their ranges, and the delegate is exact."""

import copy
import io
import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, tosa
from ratios import ratio
from small import Built
from spelled import check_one_exact
from stubborn import trainable
from torch import nn
from torchao.quantization.pt2e import disable_observer
from torchao.quantization.pt2e.fake_quantize import FusedMovingAvgObsFakeQuantize
from torchao.quantization.pt2e.observer import MovingAverageMinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.calibration import guarded_observers
from safe_arm.quantizer.training.trained_domains import TrainedDomain, TrainedValue, cover_each_value

SAMPLES = [(torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(seed)),) for seed in range(60)]


def conv(seed, ins=4):
    torch.manual_seed(seed)
    return torch.nn.Conv2d(ins, 4, 3, padding=1)


def dense(m, x):
    """Each layer reads all that came before."""
    for layer in (m.a, m.b, m.c):
        x = torch.cat((x, layer(x)), 1)
    return x


#: By name, a net of layers and values of different ranges that share a domain.
SHARING = {
    "a concatenation": lambda m, x: torch.cat((m.a(x), m.d(x) * 3), 1),
    "concatenations": dense,
    "a pool": lambda m, x: F.adaptive_avg_pool2d(m.a(x), 2),
    "where": lambda m, x: torch.where(torch.arange(8) > 4, m.a(x), m.d(x) * 5),
}


def net(rule):
    return Built(rule, a=conv(0), b=conv(1, 8), c=conv(2, 12), d=conv(3)).train()


def trained(quantizer_class, rule, samples=SAMPLES):
    """A net that batches went through while it was prepared for training, and that net in float."""
    model = net(rule)
    prepared = trainable(copy.deepcopy(model), samples[0], quantizer_class)
    for sample in samples:
        prepared(*sample).sum().backward()
    return convert_pt2e(prepared), lambda _, x: model(x).detach()


@pytest.mark.parametrize("rule", SHARING.values(), ids=SHARING)
def test_stock_clips_the_widest_value_and_ours_none(rule):
    stock = ratio(*trained(TOSAQuantizer, rule), SAMPLES[:8])
    ours = ratio(*trained(SafeTOSAQuantizer, rule), SAMPLES[:8])
    assert ours > stock + 6
    assert ours > (19 if rule is SHARING["a pool"] else 30), "a pool has the domain of what it reads"


@pytest.mark.parametrize("name", SHARING)
def test_the_one_delegate_is_exact(name):
    graph, _ = trained(SafeTOSAQuantizer, SHARING[name], SAMPLES[:4])
    check_one_exact(graph, SAMPLES[0], tosa(PROFILES[0]))


def domains(graph_module):
    target = torch.ops.quantized_decomposed.quantize_per_tensor.default
    return [node.args[1:3] for node in graph_module.graph.find_nodes(op="call_function", target=target)]


def alone(m, x):
    """Each value has a domain of its own."""
    return torch.sigmoid(m.a(x)) * m.d(x)


def test_domains_of_one_value_are_those_of_stock_where_each_batch_is_like_the_first():
    same = SAMPLES[:1] * 4
    stock, ours = (domains(trained(each, alone, same)[0]) for each in (TOSAQuantizer, SafeTOSAQuantizer))
    assert ours == stock


@pytest.mark.parametrize("rule", [alone, SHARING["a concatenation"]], ids=["alone", "shared"])
def test_a_domain_covers_the_latest_batch(rule):
    samples = [*SAMPLES[:3], (SAMPLES[3][0] * 10,)]
    assert ratio(*trained(TOSAQuantizer, rule, samples), samples[-1:]) < 10
    assert ratio(*trained(SafeTOSAQuantizer, rule, samples), samples[-1:]) > 25


def test_each_value_of_a_domain_has_a_range_that_grows_at_once_and_shrinks_by_a_hundredth():
    shared = FusedMovingAvgObsFakeQuantize(
        MovingAverageMinMaxObserver, -128, 127, dtype=torch.int8, qscheme=torch.per_tensor_affine
    )
    domain = TrainedDomain(shared, 2)
    values = [TrainedValue(domain, index) for index in range(2)]
    ranges = [[math.inf, -math.inf], [math.inf, -math.inf]]
    for index, low, high in ((0, -1, 1), (1, -5, 2), (0, -2, 0.5), (1, -1, 9), (0, -1, 1), (1, -1, 1)):
        x = torch.linspace(low, high, 50)
        # Half a step, and float32's rounding of the value.
        assert float((values[index](x) - x).abs().max()) <= 0.501 * float(shared.scale)
        known = min(ranges[index][0], low), max(ranges[index][1], high)
        ranges[index] = [known[0] + 0.01 * (low - known[0]), known[1] + 0.01 * (high - known[1])]
        known = shared.activation_post_process
        found = float(known.min_val), float(known.max_val)
        # Stock computes in float32.
        assert found == pytest.approx((min(r[0] for r in ranges), max(r[1] for r in ranges)), rel=1e-6)


def left_after_training(quantizer_class):
    """The loss that is left of a net that begins at small weights and learns one batch."""
    torch.manual_seed(0)
    sizes = (8, 32, 32, 4)
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    x, target = torch.randn(16, 8), 4 * torch.randn(16, 4)
    prepared = trainable(model.train(), (x,), quantizer_class)
    optimiser = torch.optim.Adam(prepared.parameters(), lr=0.01)
    for _ in range(200):
        optimiser.zero_grad()
        loss = F.mse_loss(prepared(x), target)
        loss.backward()
        optimiser.step()
    return float(loss.detach())


def test_a_batch_is_learnt_and_in_stock_it_is_not():
    assert left_after_training(TOSAQuantizer) > 1
    assert left_after_training(SafeTOSAQuantizer) < 0.05


@pytest.mark.parametrize("rule", [alone, SHARING["a concatenation"]], ids=["alone", "shared"])
def test_ranges_stand_still_once_observers_are_disabled(rule):
    prepared = prepared_net(rule)
    prepared(*SAMPLES[0])
    prepared.apply(disable_observer)
    state = copy.deepcopy(prepared.state_dict())
    prepared(SAMPLES[1][0] * 10)
    changed = [name for name, value in prepared.state_dict().items() if not torch.equal(value, state[name])]
    assert changed == []


def prepared_net(rule):
    return trainable(net(rule), SAMPLES[0])


def saved(model):
    """The state of a model as another process reads it."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    return torch.load(file)


@pytest.mark.parametrize("rule", [alone, SHARING["a concatenation"]], ids=["alone", "shared"])
@pytest.mark.parametrize("is_copied", [True, False])
def test_a_copy_and_a_loaded_state_go_on(rule, is_copied):
    prepared = prepared_net(rule)
    for sample in SAMPLES[:4]:
        prepared(*sample)
    other = copy.deepcopy(prepared) if is_copied else prepared_net(rule)
    other(SAMPLES[5][0] * 10)
    other.load_state_dict(saved(prepared))
    for each in (prepared, other):
        each(*SAMPLES[6])
    assert domains(convert_pt2e(other)) == domains(convert_pt2e(prepared))


def test_twice_equals_once(monkeypatch):
    changed = []

    def twice(observers):
        cover_each_value(observers)
        before = dict(observers)
        cover_each_value(observers)
        changed.append(before != observers)

    monkeypatch.setattr(guarded_observers, "cover_each_value", twice)
    trained(SafeTOSAQuantizer, SHARING["a concatenation"], SAMPLES[:1])
    assert changed == [False]
