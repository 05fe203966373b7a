"""How much of a function survives quantising: the ratio of signal to noise over samples, in dB."""

from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from small import Lambda
from stubborn import calibrated, exported, quantizer_of

from benchmarks.quality.ideal import ideal
from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.fidelity import decibel


def quantised(rule, quantizer, samples):
    """Quantise a rule of one line, calibrated on samples."""
    return calibrated(exported(Lambda(rule), samples[0]), quantizer, samples)


def ratio(net, rule, samples):
    """The ratio of a quantised net to a rule that needs no layers."""
    signal = noise = 0.0
    for sample in samples:
        expected = rule(None, *sample)
        signal += float(expected.square().sum())
        noise += float((net(*sample) - expected).square().sum())
    return decibel(signal, noise)


def ratio_of_rounded_borders(rule, samples):
    """The ratio of the float rule between quantised borders."""
    return ratio(ideal(exported(Lambda(rule), samples[0]), samples), rule, samples)


def ratios(rule, samples):
    """The ratios of rounded borders, of stock and of ours, with observers that search histograms."""
    config = get_symmetric_quantization_config()
    found = [ratio_of_rounded_borders(rule, samples)]
    for quantizer_class in (TOSAQuantizer, SafeTOSAQuantizer):
        found.append(ratio(quantised(rule, quantizer_of(quantizer_class, config=config), samples), rule, samples))
    return found
