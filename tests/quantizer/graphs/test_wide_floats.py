"""A net of 16-bit floats is quantised as well as one of float32, and is one delegate."""

import copy

import pytest
import torch
import torch.nn as nn
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes
from lowering import PROFILES, export_late, lower_safely, tosa
from small import Lambda
from stubborn import calibrated, exported, quantizer_of

from safe_arm.quantizer.graphs.wide_floats import compute_in_float32
from safe_arm.quantizer.proof.fidelity import decibel


def tokens(seed=0):
    return torch.randn(1, 12, 16, generator=torch.Generator().manual_seed(seed))


def image(seed=0):
    return torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(seed))


def seeded(make):
    torch.manual_seed(0)
    return make().eval()


def pooled():
    return nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(72, 4))


def grouped():
    return nn.Sequential(nn.Conv2d(4, 8, 3), nn.GroupNorm(2, 8), nn.Conv2d(8, 4, 3))


def normed():
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4))


#: Makers of a net and of its samples. Without the step the first and the last die, and the other loses 30 dB.
NETS = {"pool": (pooled, image), "group norm": (grouped, image), "layer norm": (normed, tokens)}


def ratio_of(net, samples, dtype, quantizer):
    """What a quantised net of a 16-bit dtype keeps of the same net in float32, and the graph."""
    narrow = [(sample.to(dtype),) for sample in samples]
    graph_module = calibrated(exported(copy.deepcopy(net).to(dtype), narrow[0]), quantizer, narrow)
    signal = noise = 0.0
    for sample in narrow:
        expected = net(sample[0].float())
        result = graph_module(*sample)
        assert result.dtype == dtype
        signal += float(expected.square().sum())
        noise += float((result.float() - expected).square().sum())
    return decibel(signal, noise), graph_module


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("make", "sample"), NETS.values(), ids=NETS)
def test_it_keeps_what_float32_does_and_is_one_delegate(make, sample, dtype):
    net, samples = seeded(make), [sample(seed) for seed in range(8)]
    with torch.no_grad():
        wide, _ = ratio_of(net, samples, torch.float32, quantizer_of())
        ours, graph_module = ratio_of(net, samples, dtype, quantizer_of())
    assert ours > wide - 1
    _, partitioner = lower_safely(graph_module, (samples[0].to(dtype),), tosa(PROFILES[0]), verify=True)
    assert [each.exact for each in partitioner.report.verifications] == [True]


def graph_of(net, *inputs):
    return export_late(net, inputs).module(check_guards=False)


def dtypes(model):
    return {node.meta["val"].dtype for node in model.graph.nodes if node.op == "call_function"}


def test_twice_equals_once_and_the_users_parameters_stay():
    net = seeded(normed).half()
    model = graph_of(net, tokens().half())
    compute_in_float32(model)
    assert not changes(compute_in_float32, model)
    assert {parameter.dtype for parameter in net.parameters()} == {torch.float16}


class Cache(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.register_buffer("kept", torch.zeros(1, 12, 16, dtype=dtype))

    def forward(self, x):
        self.kept.copy_(x)
        return self.kept * 2


@pytest.mark.parametrize("make", [lambda: (seeded(normed), tokens()), lambda: (Cache(torch.half), tokens().half())])
def test_the_near_miss_is_untouched(make):
    """Nets of float32, and such as write 16-bit floats in place."""
    net, sample = make()
    model = graph_of(net, sample)
    before = dtypes(model)
    compute_in_float32(model)
    assert dtypes(model) == before


class Scope(nn.Module):
    """A net within an autocast, but for an exponential in a scope of its own."""

    def __init__(self, dtype, casts=True):
        super().__init__()
        self.layer, self.norm = nn.Linear(16, 32), nn.LayerNorm(32)
        self.dtype, self.casts = dtype, casts

    def forward(self, x):
        x = x.tanh()
        with torch.autocast("cpu", self.dtype, self.casts):
            y = self.norm(self.layer(x))
            with torch.autocast("cpu", enabled=False):
                z = y.float().neg().exp()
            return y + z @ z.mT @ y


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_scope_that_casts_is_quantised_and_keeps_what_float32_does(dtype, profile):
    nets = [seeded(lambda casts=casts: Scope(dtype, casts)) for casts in (True, False)]
    samples = [(tokens(seed),) for seed in range(8)]
    ratios = []
    with torch.no_grad():
        for net, quantizer in zip(nets, (quantizer_of(profile=profile), quantizer_of()), strict=True):
            graph_module = calibrated(exported(net, samples[0]), quantizer, samples)
            assert "autocast" not in str(graph_module.graph)
            signal = noise = 0.0
            for sample in samples:
                expected = nets[1](*sample)
                signal += float(expected.square().sum())
                noise += float((graph_module(*sample).float() - expected).square().sum())
            ratios.append(decibel(signal, noise))
    assert ratios[0] == pytest.approx(ratios[1], abs=0.5)


def product(m, x):
    with torch.autocast("cpu", torch.half):
        return x @ x.mT


def test_stock_leaves_the_scope_float():
    net, samples = Lambda(product), [(tokens(),)]
    stock = calibrated(exported(net, samples[0]), quantizer_of(TOSAQuantizer), samples)
    assert "autocast" in str(stock.graph)


@pytest.mark.parametrize("casts", [True, False])
def test_a_scope_is_written_once_and_one_that_writes_in_place_is_left(casts):
    model = graph_of(seeded(lambda: Scope(torch.half, casts)), tokens())
    compute_in_float32(model)
    assert ("autocast" in str(model.graph)) != casts
    assert not changes(compute_in_float32, model)


class Writing(nn.Module):
    def forward(self, x):
        with torch.autocast("cpu", torch.half):
            return (x @ x.mT).add_(1.0) * 2


def test_the_near_miss_in_a_scope_is_untouched():
    assert not changes(compute_in_float32, graph_of(Writing(), tokens()))


def test_an_input_that_is_returned_keeps_its_dtype():
    net = Lambda(lambda m, x: (x, torch.softmax(x * 2, -1)))
    model = graph_of(net, tokens().half())
    compute_in_float32(model)
    assert [result.dtype for result in model(tokens().half())] == [torch.half, torch.half]
