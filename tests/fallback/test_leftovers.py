"""What was kept whole and not delegated becomes what ExecuTorch decomposes it into, and computes the same."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from dynamic import guards, symbols
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.exir import EdgeCompileConfig, to_edge, to_edge_transform_and_lower
from lowering import EDGE, executed, targets
from small import Built, Nothing
from torch.export import Dim

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm._compat.upstream import TosaCompileSpec, TOSAPartitioner
from safe_arm.fallback.leftovers import decompose_leftovers
from safe_arm.verification.reference_model import run_lowered


def leftover(function):
    torch.manual_seed(0)
    return Built(function, linear=nn.Linear(8, 8)).eval()


NETS = {
    "linear": lambda m, x: m.linear(x),
    "two linears": lambda m, x: m.linear(F.relu(m.linear(x))),
    "hardswish": lambda m, x: F.hardswish(x),
    "silu": lambda m, x: F.silu(x),
    "selu": lambda m, x: F.selu(x),
    "celu": lambda m, x: F.celu(x, 0.7),
    "pad": lambda m, x: F.pad(x, (1, 2), mode="constant", value=0.5),
    "linspace": lambda m, x: x + torch.linspace(0, 1, 8),
    "eye": lambda m, x: x + torch.eye(4, 8),
    "bilinear": lambda m, x: F.interpolate(x[None, None], scale_factor=2.0, mode="bilinear"),
    "in a branch": lambda m, x: torch.cond(x.sum() > 0, lambda y: m.linear(y), lambda y: m.linear(y) * 2, (x,)),
}


def lowered(module, inputs, partitioner_class, dynamic_shapes=None):
    partitioner = partitioner_class(TosaCompileSpec("TOSA-1.0+FP"), additional_checks=[Nothing()])
    exported = torch.export.export(module, inputs, dynamic_shapes=dynamic_shapes)
    return to_edge_transform_and_lower(exported, partitioner=[partitioner], compile_config=EDGE)


@pytest.mark.parametrize("name", NETS)
def test_all_refused_runs_on_the_cpu_as_eager_does(name):
    module, inputs = leftover(NETS[name]), (torch.randn(4, 8, generator=torch.Generator().manual_seed(0)),)
    manager = lowered(module, inputs, SafeArmPartitioner)
    for actual in (*run_lowered(manager.exported_program(), inputs), *executed(manager, inputs)[0]):
        assert torch.allclose(actual, module(*inputs), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("selu", "Missing out variants"),
        ("pad", "Missing out variants"),
        ("celu", "Failed to load method"),
        ("linspace", "Failed to load method"),
    ],
)
def test_stock_leaves_what_no_kernel_computes(name, says):
    inputs = (torch.randn(4, 8),)
    with pytest.raises(RuntimeError, match=says):
        executed(lowered(leftover(NETS[name]), inputs, TOSAPartitioner), inputs)


def test_what_stays_whole_everywhere_is_left_alone():
    module = leftover(lambda m, x: F.interpolate(x[None, None], scale_factor=2.0))
    manager = lowered(module, (torch.randn(4, 8),), SafeArmPartitioner)
    assert targets(manager.exported_program().graph_module)[-1] == "upsample_nearest2d"


#: Batch and sequence length of every net below, and the sizes they run at: the smallest, a middle and the largest.
DYNAMIC = ({0: Dim("batch", min=2, max=8), 1: Dim("length", min=3, max=16)},)
SIZES = ((2, 3, 8), (5, 7, 8), (8, 16, 8))
#: What is kept whole, and a net that has it.
WHOLE = {
    "linear": (torch.ops.aten.linear.default, NETS["linear"]),
    "linear of an expression": (torch.ops.aten.linear.default, lambda m, x: m.linear(torch.cat((x, x), 1)[:, 1:])),
    "pad": (torch.ops.aten.pad.default, NETS["pad"]),
    "celu": (torch.ops.aten.celu.default, NETS["celu"]),
    "eye of a dynamic size": (torch.ops.aten.eye.default, lambda m, x: torch.eye(x.shape[1]) @ x),
    "two outputs": (torch.ops.aten.aminmax.default, lambda m, x: torch.sub(*torch.aminmax(x, dim=1))),
    "the second of two outputs": (torch.ops.aten.aminmax.default, lambda m, x: torch.aminmax(x, dim=1)[1]),
    "in a branch": (torch.ops.aten.linear.default, NETS["in a branch"]),
}


def assert_runs_at_every_size(manager, module):
    samples = [(torch.randn(size, generator=torch.Generator().manual_seed(0)),) for size in SIZES]
    for inputs, (actual,) in zip(samples, executed(manager, *samples), strict=True):
        assert torch.allclose(actual, module(*inputs), atol=1e-6), actual.shape


@pytest.mark.parametrize("name", WHOLE)
def test_a_dynamic_size_stays_a_symbol(name):
    op, function = WHOLE[name]
    module = leftover(function)
    exported = torch.export.export(module, (torch.randn(4, 6, 8),), dynamic_shapes=DYNAMIC)
    manager = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False, preserve_ops=[op]))
    program = manager.exported_program()
    before = symbols(program), guards(program)
    assert decompose_leftovers(program, [op])
    program.graph.lint()
    assert (symbols(program), guards(program)) == before
    assert not any(getattr(node.target, "_op", None) is op for node in program.graph.nodes)
    assert_runs_at_every_size(manager, module)


def test_a_quantised_island_that_is_kept_whole_and_refused_keeps_its_dynamic_sizes():
    spec, inputs = TosaCompileSpec("TOSA-1.0+INT+FP"), (torch.randn(4, 6, 8),)
    net = leftover(lambda m, x: F.relu(m.linear(x)))
    quantizer = SafeTOSAQuantizer(spec)
    quantizer.set_global(get_symmetric_quantization_config())
    graph_module = torch.export.export(net, inputs, dynamic_shapes=DYNAMIC).module(check_guards=False)
    graph_module = quantizer.quantize_with_submodules(graph_module, [inputs])
    exported = torch.export.export(graph_module, inputs, dynamic_shapes=DYNAMIC)
    stock = to_edge(exported, compile_config=EDGE).exported_program()
    partitioner = SafeArmPartitioner(spec, [Nothing()])
    manager = to_edge_transform_and_lower(exported, partitioner=[partitioner], compile_config=EDGE)
    assert symbols(manager.exported_program()) == symbols(stock)
    assert_runs_at_every_size(manager, graph_module)
