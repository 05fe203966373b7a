"""Steps that exchange observers before they are inserted, watched while a rule is quantised."""

from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import quantised_whole
from ratios import ratio
from small import Built, Lambda
from stubborn import quantizer_of, trainable
from torch import nn, ones
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.calibration import guarded_observers


def exchanges(monkeypatch, step, rule, samples, **how):
    """Whether a step exchanges observers when a rule is quantised, and whether a second time changes anything."""
    found = []

    def watched(observers):
        before = dict(observers)
        step(observers)
        once = dict(observers)
        step(observers)
        found.append((before != once, once != observers))

    monkeypatch.setattr(guarded_observers, step.__name__, watched)
    quantised_whole(quantizer_of(is_qat=how.get("is_qat", False)), Lambda(rule), samples, **how)
    return found


def trained_ratios(rule, samples):
    """The ratios of stock and of ours, trained."""
    return [ratio(trained(each, rule, samples), rule, samples) for each in (TOSAQuantizer, SafeTOSAQuantizer)]


def trained(quantizer_class, rule, samples):
    """A net after some steps of quantisation-aware training; its input has a factor of 1 that is trained."""
    net = Built(lambda m, x, *more: rule(m, x * m.factor, *more), factor=nn.Parameter(ones(1)))
    prepared = trainable(net.train(), samples[0], quantizer_class)
    for sample in samples * 4:
        prepared(*sample).sum().backward()
    return convert_pt2e(prepared)
