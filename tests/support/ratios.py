"""How much of a function survives quantising: the ratio of signal to noise over samples, in dB."""

from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import HISTOGRAM, PROFILES, export_late, tosa
from small import Lambda
from spelled import check_one_exact
from stubborn import calibrated, exported, quantizer_of

from benchmarks.quality.ideal import ideal
from safe_arm import SafeEthosUQuantizer, SafeTOSAQuantizer
from safe_arm.quantizer.proof.fidelity import decibel
from safe_arm.verification.reference_model import run_lowered


def quantised(rule, quantizer, samples):
    """Quantise a rule of one line, calibrated on samples."""
    return calibrated(exported(Lambda(rule), samples[0]), quantizer, samples)


def ours_exactly(rule, samples, profile=PROFILES[0]):
    """Quantise a rule with ours, check that one delegate computes it exactly, and return the graph."""
    graph_module = quantised(rule, quantizer_of(profile=profile), samples)
    check_one_exact(graph_module, samples[0], tosa(profile))
    return graph_module


def for_ethos_u(target):
    """Our quantiser for an Ethos-U."""
    return SafeEthosUQuantizer(EthosUCompileSpec(target)).set_global(HISTOGRAM)


def exactly_on(target, rule, samples):
    """The same as ``ours_exactly`` for an Ethos-U."""
    graph_module = quantised(rule, for_ethos_u(target), samples)
    check_one_exact(graph_module, samples[0], EthosUCompileSpec(target))
    return graph_module


def ratio(net, rule, samples):
    """The ratio of a quantised net to a rule that needs no layers."""
    signal = noise = 0.0
    for sample in samples:
        expected = rule(None, *sample)
        signal += float(expected.square().sum())
        noise += float((net(*sample) - expected).square().sum())
    return decibel(signal, noise)


def delegated_ratio(manager, rule, samples):
    """The ratio of a lowered program, run in the reference model, to a rule."""
    program = manager.exported_program()
    return ratio(lambda *sample: run_lowered(program, sample)[0], rule, samples)


def ratio_of_rounded_borders(rule, samples):
    """The ratio of the float rule between quantised borders."""
    return ratio(ideal(exported(Lambda(rule), samples[0]), samples), rule, samples)


def both(rule, samples, config=None):
    """A rule as stock quantises it, and as ours does, exported once: it has no layers, whose weights stock scales."""
    program = export_late(Lambda(rule), samples[0])
    found = []
    for each in (TOSAQuantizer, SafeTOSAQuantizer):
        model = program.module(check_guards=False)
        found.append(calibrated(model, quantizer_of(each, config=config), samples))
    return found


def both_ratios(rule, samples, config=None):
    """The ratios of both."""
    return [ratio(net, rule, samples) for net in both(rule, samples, config)]


def histogram_ratios(rule, samples):
    """The ratios of both with observers that search histograms."""
    return both_ratios(rule, samples, HISTOGRAM)


def ratios(rule, samples):
    """The same, of rounded borders first."""
    return [ratio_of_rounded_borders(rule, samples), *histogram_ratios(rule, samples)]


def ratio_of_ours(rule, samples, config=None):
    """The ratio of ours alone."""
    return ratio(quantised(rule, quantizer_of(config=config), samples), rule, samples)


def borders_and_ours(rule, samples):
    """The ratios of rounded borders and of ours, with observers that search histograms."""
    return ratio_of_rounded_borders(rule, samples), ratio_of_ours(rule, samples, HISTOGRAM)
