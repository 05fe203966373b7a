"""What was kept whole and not delegated becomes what ExecuTorch decomposes it into, and computes the same."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from lowering import EDGE, targets
from torch.fx.passes.operator_support import OperatorSupportBase

from safe_arm import SafeArmPartitioner
from safe_arm._compat.upstream import TosaCompileSpec, TOSAPartitioner
from safe_arm.verification.reference_model import run_lowered


class Nothing(OperatorSupportBase):
    def is_node_supported(self, submodules, node):
        return False


class Leftover(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.function = nn.Linear(8, 8), function
        self.eval()

    def forward(self, x):
        return self.function(self, x)


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


def lowered(module, inputs, partitioner_class):
    partitioner = partitioner_class(TosaCompileSpec("TOSA-1.0+FP"), additional_checks=[Nothing()])
    return to_edge_transform_and_lower(
        torch.export.export(module, inputs), partitioner=[partitioner], compile_config=EDGE
    )


def execute(manager, inputs):
    program = Runtime.get().load_program(manager.to_executorch().buffer)
    return program.load_method("forward").execute(list(inputs))


@pytest.mark.parametrize("name", NETS)
def test_all_refused_runs_on_the_cpu_as_eager_does(name):
    module, inputs = Leftover(NETS[name]), (torch.randn(4, 8, generator=torch.Generator().manual_seed(0)),)
    manager = lowered(module, inputs, SafeArmPartitioner)
    for actual in (*run_lowered(manager.exported_program(), inputs), *execute(manager, inputs)):
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
        execute(lowered(Leftover(NETS[name]), inputs, TOSAPartitioner), inputs)


def test_what_stays_whole_everywhere_is_left_alone():
    module = Leftover(lambda m, x: F.interpolate(x[None, None], scale_factor=2.0))
    manager = lowered(module, (torch.randn(4, 8),), SafeArmPartitioner)
    assert targets(manager.exported_program().graph_module)[-1] == "upsample_nearest2d"
