"""What lies at the end of a range of 16 bits has its code; stock's histogram is some 16 codes off there."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import HISTOGRAM, WIDE, lower_exactly, min_max, tosa
from ratios import both, quantised, ratio
from stubborn import quantizer_of
from torchao.quantization.pt2e.observer import HistogramObserver

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.calibration.range_ends import keep_ends_of_ranges

PROFILE = "TOSA-1.0+INT+int16"
FACTORS = torch.tensor([0.1, 1.0, 10.0, 100.0])
GENERATOR = torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def same_values():
    """Each test draws the same values, whichever ran before it."""
    GENERATOR.manual_seed(0)


def images():
    return [(torch.randint(0, 256, (16, 32), generator=GENERATOR).clamp(20, 230) - 20.0,) for _ in range(4)]


def normal(*shape):
    return [(torch.randn(shape, generator=GENERATOR) * 3,) for _ in range(4)]


RULES = {
    "a clipped image": (lambda m, x: x * 0.3, images(), 90),
    "an activation that clips": (lambda m, x: x.clamp(-1, 1) * 3, normal(16, 32), 87),
    "factors": (lambda m, x: x * FACTORS, normal(8, 4), 75),
    "addends": (lambda m, x: x + FACTORS, normal(8, 4), 85),
}


def by(quantizer_class, rule, samples, config=WIDE):
    return quantised(rule, quantizer_of(quantizer_class, PROFILE, config=config), samples)


@pytest.mark.parametrize(("rule", "samples", "least"), RULES.values(), ids=RULES)
def test_stock_is_off_at_the_end_and_ours_is_not(rule, samples, least):
    of_stock, ours = (by(each, rule, samples) for each in (TOSAQuantizer, SafeTOSAQuantizer))
    assert ratio(of_stock, rule, samples) < least < ratio(ours, rule, samples)


@pytest.mark.parametrize(("rule", "samples"), [each[:2] for each in RULES.values()], ids=RULES)
def test_the_delegate_is_exact_and_conversion_is_said_to_change_nothing(rule, samples, recwarn):
    graph_module = by(SafeTOSAQuantizer, rule, samples)
    assert [str(warning.message) for warning in recwarn if "what the net computes" in str(warning.message)] == []
    lower_exactly(graph_module, tosa(PROFILE), *samples[:2])


def domains(graph_module):
    nodes = graph_module.graph.nodes
    return [node.args[1:3] for node in nodes if "quantize_per_tensor" in str(node.target)]


@pytest.mark.parametrize("config", [HISTOGRAM, min_max()], ids=["histogram", "min-max"])
def test_domains_of_8_bits_are_stock_s(config):
    of_stock, ours = both(*RULES["a clipped image"][:2], config)
    assert domains(ours) == domains(of_stock)


def observer_of(values):
    observer = HistogramObserver(
        dtype=torch.int16, qscheme=torch.per_tensor_symmetric, quant_min=-32767, quant_max=32767
    )
    observer(values)
    return observer


def kept(observer):
    keep_ends_of_ranges({torch.fx.Graph().placeholder("x"): observer})
    return observer


def test_a_range_ends_with_its_values_and_again_when_it_is_asked_for_twice():
    values = torch.linspace(-1, 1, 999).clamp(-0.5, 0.9)
    observer = observer_of(values)
    assert float(observer.calculate_qparams()[0]) != pytest.approx(0.9 / 32767, rel=1e-5)
    (once, _), (twice, _) = kept(observer).calculate_qparams(), kept(observer).calculate_qparams()
    assert float(once) == float(twice) == pytest.approx(0.9 / 32767, rel=1e-5)


def test_what_the_search_cuts_off_on_purpose_stays_cut_off(monkeypatch):
    ends = torch.tensor(-0.5), torch.tensor(0.5)
    monkeypatch.setattr(HistogramObserver, "_non_linear_param_search", lambda self: ends)
    observer = kept(observer_of(torch.linspace(-1, 1, 999)))
    assert float(observer.calculate_qparams()[0]) == pytest.approx(0.5 / 32767, rel=1e-5)
