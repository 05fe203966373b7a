"""Values that share a domain in quantisation-aware training keep their ranges, and the delegate is exact."""

import copy

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, tosa
from ratios import ratio
from small import Built
from spelled import check_one_exact
from stubborn import prepare, quantizer_of
from torchao.quantization.pt2e import disable_observer
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer import guarded_observers
from safe_arm.quantizer.trained_domains import cover_each_value

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
    prepared = prepare(copy.deepcopy(model), quantizer_of(quantizer_class, is_qat=True), samples[0], is_qat=True)
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
    """The qparams of a graph's quantised values."""
    target = torch.ops.quantized_decomposed.quantize_per_tensor.default
    return [node.args[1:3] for node in graph_module.graph.find_nodes(op="call_function", target=target)]


def test_a_domain_of_one_value_is_as_in_stock():
    def rule(m, x):
        return torch.sigmoid(m.a(x)) * m.d(x)

    assert domains(trained(SafeTOSAQuantizer, rule)[0]) == domains(trained(TOSAQuantizer, rule)[0])


def test_ranges_stand_still_once_observers_are_disabled():
    model = net(SHARING["a concatenation"])
    prepared = prepare(model, quantizer_of(SafeTOSAQuantizer, is_qat=True), SAMPLES[0], is_qat=True)
    prepared(*SAMPLES[0])
    prepared.apply(disable_observer)
    state = copy.deepcopy(prepared.state_dict())
    prepared(SAMPLES[1][0] * 10)
    changed = [name for name, value in prepared.state_dict().items() if not torch.equal(value, state[name])]
    assert changed == []


def test_a_copy_and_a_loaded_state_go_on():
    model = net(SHARING["a concatenation"])
    prepared = prepare(model, quantizer_of(SafeTOSAQuantizer, is_qat=True), SAMPLES[0], is_qat=True)
    for sample in SAMPLES[:4]:
        prepared(*sample)
    other = copy.deepcopy(prepared)
    other(SAMPLES[5][0] * 10)
    other.load_state_dict(prepared.state_dict())
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
