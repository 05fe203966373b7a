"""What XNNPACK lowers and does not load is refused at export; what it loads goes through."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from lowering import executed, lower, quantize, tosa
from small import Built, Nothing

from safe_arm import SafeArmPartitioner
from safe_arm._compat.loading import delegates, why_it_does_not_load
from safe_arm.core.errors import FallbackError
from safe_arm.fallback.load_check import check_fallbacks_load

PROFILE = "TOSA-1.0+INT+FP"


def chained(conv, rank, *checks, **options):
    torch.manual_seed(0)
    inputs = (torch.randn(1, 4, *([6] * rank)),)
    net = Built(lambda m, x: F.relu(m.conv(x)), conv=conv(4, 4, 3, padding=1)).eval()
    graph_module = quantize(net, inputs, tosa(PROFILE))
    return lower(graph_module, inputs, SafeArmPartitioner(tosa(PROFILE), checks, **options), XnnpackPartitioner())


def test_an_activation_behind_a_conv3d_does_not_load_and_says_so(capfd):
    message = r"XnnpackBackend lowered lowered_module_\d and .*\(xnn_status_unsupported_parameter\). It holds aten_relu"
    with pytest.raises(FallbackError, match=message):
        chained(nn.Conv3d, 3, Nothing())
    assert "XNN Runtime creation failed" not in capfd.readouterr().err


def test_it_does_not_load_indeed():
    with pytest.raises(RuntimeError, match="Failed to load method"):
        executed(chained(nn.Conv3d, 3, Nothing(), preflight=False))


def test_a_conv2d_loads_and_keeps_loading():
    program = chained(nn.Conv2d, 2, Nothing()).exported_program()
    assert [why_it_does_not_load(module) for _, module in delegates(program.graph_module)] == [""]
    check_fallbacks_load(program)


def test_a_delegate_of_ours_is_not_asked_about():
    program = chained(nn.Conv2d, 2).exported_program()
    assert "TOSABackend" in [m.backend_id for _, m in delegates(program.graph_module)]
