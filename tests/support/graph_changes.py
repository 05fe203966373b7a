"""Exported graphs, whether a step changes them, and quantising by one call."""

import torch
from lowering import HISTOGRAM, PROFILES, by_one_call
from small import Lambda, image
from stubborn import calibrated, exported, quantizer_of
from torch.nn import Conv2d

from safe_arm import SafeTOSAQuantizer


def graph_of(rule, *inputs):
    """Export a forward written in one line."""
    return exported(Lambda(rule), inputs or image())


def changes(step, model):
    """Run a step on a graph, and tell whether it changed it."""
    before = str(model.graph)
    step(model)
    return str(model.graph) != before


def changes_once(step, model):
    """Run a step twice, and tell whether the first run alone changed the graph."""
    return changes(step, model) and not changes(step, model)


def annotated(net, quantizer, inputs):
    """Export a net, and let a quantiser annotate it."""
    return quantizer.annotate(quantizer.transform_for_annotation(exported(net, inputs)))


def annotations(model):
    return [str(node.meta.get("quantization_annotation")) for node in model.graph.nodes]


def wide(model, *begins, dtype=torch.int32):
    """The names, or those with some beginnings, of nodes whose output is annotated with a type of many bits."""
    names = []
    for node in model.graph.nodes:
        spec = getattr(node.meta.get("quantization_annotation"), "output_qspec", None)
        if getattr(spec, "dtype", None) == dtype and node.name.startswith(begins or ""):
            names.append(node.name)
    return names


def annotates_no_more(step, model):
    """Run a step on an annotated graph, and tell whether all annotations are what they were."""
    before = annotations(model)
    step(model)
    return annotations(model) == before


def at_once(model, samples):
    """Quantise an exported graph by one call of ours."""
    return quantizer_of().quantize_with_submodules(model, samples)


def step_by_step(model, samples):
    """Quantise an exported graph with ours as torchao's own functions do it."""
    return calibrated(model, quantizer_of(), samples)


def quantised_whole(quantizer, net, samples, is_qat=False, **how):
    """Export a net and quantise it by one call."""
    return by_one_call(quantizer, exported(net, samples[0], **how), samples, is_qat=is_qat)


def quantised_around(activation, quantizer_class=SafeTOSAQuantizer, *, in_part=True):
    """Two quantised convolutions, and an activation between them that is left float, or quantised as well."""
    net = Lambda(lambda m, x: m.conv_b(activation(m.conv(x))))
    quantizer = quantizer_of(quantizer_class, PROFILES[1])
    if in_part:
        quantizer.set_global(None).set_module_type(Conv2d, HISTOGRAM)
    return quantised_whole(quantizer, net, [image(seed) for seed in range(3)])
