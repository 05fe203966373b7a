"""How much of a function survives quantising: the ratio of signal to noise over samples, in dB."""

from small import Lambda
from stubborn import calibrated, exported

from benchmarks.quality.ideal import ideal
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
