"""Calibration that teaches no range is warned about once; real samples are not."""

import warnings

import pytest
import torch
import torch.nn as nn
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from lowering import PROFILES, tosa
from small import Lambda, image
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.errors import DoubtfulInputWarning

NET = Lambda(lambda m, x: torch.relu(m.conv(x))).eval()


def quantizer(**config):
    made = SafeTOSAQuantizer(tosa(PROFILES[0]))
    made.set_global(get_symmetric_quantization_config(**config))
    return made


def graph(net=NET, inputs=None):
    return torch.export.export(net, inputs or image()).module(check_guards=False)


def told(work):
    """What is warned about while something runs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [str(each.message) for each in caught if issubclass(each.category, DoubtfulInputWarning)]


SAMPLES = {
    "several": ([image(seed) for seed in range(3)], None),
    "one": ([image()], "calibrated on a single sample"),
    "the same again": ([image()] * 3, "calibrated on 3 samples that are all the same"),
    "zeros": ([(torch.zeros_like(image()[0]),)] * 2, "input 'x' is 0 everywhere in the calibration data"),
    "a constant": ([(torch.full_like(image()[0], 0.5),)], "input 'x' is 0.5 everywhere"),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_of_little_use_are_warned_about(name):
    samples, says = SAMPLES[name]
    messages = told(lambda: quantizer().quantize_with_submodules(graph(), samples))
    assert len(messages) == (says is not None)
    assert says is None or says in messages[0]


def test_the_flow_of_pt2e_is_watched_as_well():
    ours = quantizer()

    def flow(samples):
        prepared = prepare_pt2e(graph(), ours)
        for sample in samples:
            prepared(*sample)
        convert_pt2e(prepared)

    assert "single sample" in " ".join(told(lambda: flow([image()])))
    assert told(lambda: flow([image(), image(1)])) == []
    assert "single sample" in " ".join(told(lambda: flow([image()])))


def test_one_input_that_stays_the_same_beside_one_that_does_not_is_no_reason():
    net = Lambda(lambda m, x, y: torch.relu(m.conv(x)) + y).eval()
    samples = [(*image(seed), *image(9)) for seed in range(3)]
    assert told(lambda: quantizer().quantize_with_submodules(graph(net, samples[0]), samples)) == []


def test_the_inputs_of_branches_are_not_the_user_s():
    class Branches(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: torch.relu(x) * 2, lambda x: torch.relu(x) * 3, (x,))

    samples = [(torch.rand(1, 4) + 1,), (-torch.rand(1, 4) - 1,), (torch.rand(1, 4),)]
    assert told(lambda: quantizer().quantize_with_submodules(graph(Branches(), samples[0]), samples)) == []


def test_training_is_for_quantisation_aware_training_and_for_nothing_else():
    net = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout()).train()
    exported = graph(net)
    assert told(lambda: prepare_qat_pt2e(exported, quantizer(is_qat=True))) == []
    (message,) = told(lambda: prepare_pt2e(graph(net), quantizer()))
    assert message.startswith("the model was exported in training mode")
    assert told(lambda: prepare_pt2e(graph(net.eval()), quantizer())) == []
