"""What XNNPACK lowers and does not load is refused at export; what it loads goes through."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from lowering import EDGE, quantize, tosa
from small import Built, Nothing

from safe_arm import SafeArmPartitioner
from safe_arm._compat.loading import delegates, why_it_does_not_load
from safe_arm.core.errors import FallbackError
from safe_arm.fallback.load_check import check_fallbacks_load

PROFILE = "TOSA-1.0+INT+FP"


def island(conv, activation):
    torch.manual_seed(0)
    return Built(lambda m, x: activation(m.conv(x)), conv=conv(4, 4, 3, padding=1)).eval()


def chained(conv, rank, activation=F.relu, **options):
    inputs = (torch.randn(1, 4, *([6] * rank)),)
    graph_module = quantize(island(conv, activation), inputs, tosa(PROFILE))
    partitioners = [SafeArmPartitioner(tosa(PROFILE), [Nothing()], **options), XnnpackPartitioner()]
    exported = torch.export.export(graph_module, inputs)
    return to_edge_transform_and_lower(exported, partitioner=partitioners, compile_config=EDGE)


def test_an_activation_behind_a_conv3d_does_not_load_and_says_so(capfd):
    message = r"XnnpackBackend lowered lowered_module_\d and .*\(xnn_status_unsupported_parameter\). It holds aten_relu"
    with pytest.raises(FallbackError, match=message):
        chained(nn.Conv3d, 3)
    assert "XNN Runtime creation failed" not in capfd.readouterr().err


def test_it_does_not_load_indeed():
    manager = chained(nn.Conv3d, 3, preflight=False)
    buffer = manager.to_executorch().buffer
    with pytest.raises(RuntimeError, match="Failed to load method"):
        Runtime.get().load_program(buffer).load_method("forward")


def test_a_conv2d_loads_and_keeps_loading():
    program = chained(nn.Conv2d, 2).exported_program()
    assert [why_it_does_not_load(module) for _, module in delegates(program.graph_module)] == [""]
    check_fallbacks_load(program)


def test_a_delegate_of_ours_is_not_asked_about():
    inputs = (torch.randn(1, 4, 6, 6),)
    graph_module = quantize(island(nn.Conv2d, F.relu), inputs, tosa(PROFILE))
    exported = torch.export.export(graph_module, inputs)
    manager = to_edge_transform_and_lower(
        exported, partitioner=[SafeArmPartitioner(tosa(PROFILE)), XnnpackPartitioner()], compile_config=EDGE
    )
    assert "TOSABackend" in [m.backend_id for _, m in delegates(manager.exported_program().graph_module)]
