"""Quantise, lower, run in the reference model, count codes: what most tests do."""

import dataclasses

import torch
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.backends.arm.quantizer.arm_quantizer import get_symmetric_a16w8_quantization_config
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.exir import EdgeCompileConfig, to_edge, to_edge_transform_and_lower
from executorch.runtime import Runtime
from profiles import PROFILES as PROFILES
from stock import StockProgram, stock_lower
from torchao.quantization.pt2e import MinMaxObserver

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm._compat.tested_releases import executorch_version, parse
from safe_arm.acceleration.late_code import late
from safe_arm.core.island import op_name
from safe_arm.verification.reference_model import run_lowered

#: Configurations whose observers of activations search histograms, for 8 bits and for 16.
HISTOGRAM, WIDE = get_symmetric_quantization_config(), get_symmetric_a16w8_quantization_config()
EDGE = EdgeCompileConfig(_check_ir_validity=False)
#: The release of ExecuTorch, as two numbers.
RELEASE = parse(executorch_version())


def min_max(config=None):
    """A configuration whose observers of activations search no histogram: for tests of what is not observed."""
    config = config or get_symmetric_quantization_config()
    changes = {}
    for name in ("input_activation", "output_activation"):
        observer = MinMaxObserver.with_args(eps=2**-16)
        changes[name] = dataclasses.replace(getattr(config, name), observer_or_fake_quant_ctr=observer)
    return dataclasses.replace(config, **changes)


def export_late(net, inputs, **how):
    """Export a net as torch does; what it makes on the way writes its code when it is called."""
    with late():
        return torch.export.export(net, inputs, **how)


def quantize(model, inputs, spec, *, narrow=False, quantizer_class=SafeTOSAQuantizer, io=False, config=None):
    """Return the converted PT2E graph module."""
    quantizer = quantizer_class(spec)
    config = config or get_symmetric_quantization_config(act_qmin=-127 if narrow else -128)
    quantizer.set_global(config)
    if io:
        quantizer.set_io(config)
    module = export_late(model, inputs).module(check_guards=is_safe(quantizer))
    return by_one_call(quantizer, module, [inputs])


def is_safe(quantizer):
    """Tell whether a quantiser is ours: users export for it with guards, on which stock dies (T60)."""
    return type(quantizer).__module__.startswith("safe_arm")


def by_one_call(quantizer, exported, samples, **how):
    """Quantise by the one call that releases name differently."""
    run = getattr(quantizer, "quantize_with_submodules", None) or quantizer._quantize_with_submodules
    return run(exported, samples, **how)


def lower(graph_module, inputs, *partitioners):
    """Return the lowered edge program manager."""
    return lower_program(export_late(graph_module, inputs), *partitioners)


def lower_program(program, *partitioners):
    """The same of an exported program, for several partitioners in a chain."""
    return to_edge_transform_and_lower(program, partitioner=[*partitioners], compile_config=EDGE)


def tosa(profile):
    return TosaCompileSpec(profile)


def spec_list(spec):
    """The compile specs a delegate gets; the method is public in 1.2 only."""
    return (getattr(spec, "_to_list", None) or spec.to_list)()


def delegates(manager):
    """The TOSA flatbuffers of a lowered program, in graph order."""
    if isinstance(manager, StockProgram):
        return manager.delegates()
    module = manager.exported_program().graph_module
    return [m.processed_bytes for name, m in module.named_children() if name.startswith("lowered_module")]


def output_steps(graph_module):
    """The scale of each output's quantiser in a PT2E graph; 1 for outputs that are not dequantised."""
    outputs = next(n for n in graph_module.graph.nodes if n.op == "output").args[0]
    outputs = outputs if isinstance(outputs, (list, tuple)) else (outputs,)
    return [float(o.args[1]) if "dequantize" in str(o.target) else 1.0 for o in outputs]


def codes_apart(manager, graph_module, *samples):
    """The worst difference between the lowered program and the PT2E graph over samples and outputs, in codes."""
    if isinstance(manager, StockProgram):
        return manager.codes_apart(*samples)
    worst = 0
    for inputs in samples:
        with torch.no_grad():
            expected = graph_module(*inputs)
        expected = expected if isinstance(expected, (list, tuple)) else (expected,)
        actual = run_lowered(manager.exported_program(), inputs)
        for a, e, step in zip(actual, expected, output_steps(graph_module), strict=True):
            worst = max(worst, int(torch.round((a - e).abs().max() / step).item()))
    return worst


def by_stock(graph_module, inputs, spec):
    """The program that stock makes of a graph, or what is on record of it."""
    return stock_lower(graph_module, inputs, TOSAPartitioner(spec))


def stock_codes_apart(graph_module, inputs, spec, *samples):
    """The same of what stock lowers, over samples, or over the inputs that it is lowered with."""
    return codes_apart(by_stock(graph_module, inputs, spec), graph_module, *(samples or (inputs,)))


def lower_safely(graph_module, inputs, spec, *checks, **options):
    """Lower with our partitioner; return the program manager and the partitioner."""
    partitioner = SafeArmPartitioner(spec, *checks, **options)
    return lower(graph_module, inputs, partitioner), partitioner


def computed_by(partitioner, net, inputs):
    """What a net gives that a partitioner lowered."""
    return run_lowered(lower(net, inputs, partitioner).exported_program(), inputs)


def corrected(correction, issue, net, inputs, spec, verify=False):
    """What a net gives that ours lowered: nothing of it stays on the CPU, and one correction was applied."""
    partitioner = SafeArmPartitioner(spec, verify=verify)
    values = computed_by(partitioner, net, inputs)
    assert partitioner.report.fallbacks == ()
    assert {(each.correction, each.issue) for each in partitioner.report.applied} == {(correction, issue)}
    return values


def lower_exactly(graph_module, spec, *samples, **options):
    """Lower with our partitioner, which is returned; nothing stays on the CPU, and no code of any sample is off."""
    manager, partitioner = lower_safely(graph_module, samples[0], spec, **options)
    assert partitioner.report.fallbacks == ()
    assert codes_apart(manager, graph_module, *samples) == 0
    return partitioner


def lower_in_part(graph_module, spec, *samples, **options):
    """Lower with our partitioner, and check that there is a delegate and that no code of any sample is off."""
    manager, partitioner = lower_safely(graph_module, samples[0], spec, **options)
    assert delegates(manager)
    assert codes_apart(manager, graph_module, *samples) == 0
    return partitioner


def check_stocks_bytes(graph_module, inputs, spec, **options):
    """Check that the delegates of our partitioner are those of stock's, to the byte."""
    stock = delegates(by_stock(graph_module, inputs, spec))
    assert delegates(lower(graph_module, inputs, SafeArmPartitioner(spec, **{"verify": False} | options))) == stock


def executed(manager, *samples):
    """The outputs of ExecuTorch's runtime for each sample, of a program without Arm delegates."""
    buffer = manager.to_executorch().buffer  # has to outlive what runs out of it
    program = Runtime.get().load_program(buffer)
    method = program.load_method("forward")
    return [[output.clone() for output in method.execute(list(sample))] for sample in samples]


def edge_program(graph_module, inputs):
    """The edge program of a PT2E graph, not partitioned."""
    with late():
        return to_edge(torch.export.export(graph_module, inputs), compile_config=EDGE).exported_program()


def targets(graph_module):
    """The operator names of a graph, in order, without namespaces."""
    return [op_name(n).split("::")[-1] for n in graph_module.graph.nodes if op_name(n)]
