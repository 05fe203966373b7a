"""Tensors without elements stay on the CPU, and what is beside them does not."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import PROFILES, check_stocks_bytes, delegates, edge_program, lower_safely, min_max, quantize, tosa
from prepared import prepared
from small import Lambda, image
from stock import stock_lower

from safe_arm import SafeArmPartitioner
from safe_arm.partitioner.plan import plan
from safe_arm.verification.model_server import ReferenceModelError
from safe_arm.verification.reference_model import run_lowered, run_tosa

EMPTY = Lambda(lambda m, x: (m.conv(x), torch.relu(x[:, :0]) + 1))
NOTHING = (torch.zeros(1, 0, 4),)


def test_stock_writes_sizes_that_tosa_has_not():
    net = Lambda(lambda m, x: torch.relu(x) * 2)
    graph_module = quantize(net, NOTHING, tosa(PROFILES[1]), quantizer_class=TOSAQuantizer)
    (flatbuffer,) = delegates(stock_lower(graph_module, NOTHING, TOSAPartitioner(tosa(PROFILES[1]))))
    with pytest.raises(ReferenceModelError):
        run_tosa(bytes(flatbuffer), list(NOTHING))


def test_ours_leaves_them_out_and_says_which(profile):
    partitioner = SafeArmPartitioner(tosa(profile), verify=False)
    partitioner.partition(prepared(EMPTY, profile).program())
    reasons = {verdict.op: verdict.reason for verdict in partitioner.report.fallbacks if verdict.issue == "E1"}
    assert {"aten::slice_copy", "aten::relu", "aten::add"} == set(reasons)
    assert reasons["aten::slice_copy"] == "aten_slice_copy_tensor has no elements, and in TOSA every size is at least 1"
    assert partitioner.report.macs_delegated == 1


def test_what_a_mask_may_leave_nothing_of_stays_on_the_cpu(profile):
    net = Lambda(lambda m, x: torch.relu(x)[x > 0.5] * 2)
    graph_module = quantize(net, image(), tosa(profile), config=min_max())
    manager, partitioner = lower_safely(graph_module, image(), tosa(profile))
    reasons = [verdict.reason for verdict in partitioner.report.fallbacks if verdict.op == "aten::mul"]
    assert reasons
    assert all("may have no elements" in reason for reason in reasons)
    nothing = (torch.zeros(1, 4, 8, 8),)
    for sample in (image(), nothing):
        assert torch.equal(run_lowered(manager.exported_program(), sample)[0], graph_module(*sample))


def test_one_element_is_left_alone():
    net = Lambda(lambda m, x: torch.relu(x[:, :1]) + 1)
    graph_module = quantize(net, image(), tosa(PROFILES[1]))
    check_stocks_bytes(graph_module, image(), tosa(PROFILES[1]))


def test_empty_values_that_nobody_reads_are_left_alone():
    program = edge_program(torch.nn.BatchNorm2d(4).eval(), image())
    (norm,) = (node for node in program.graph.nodes if "batch_norm" in str(node.target))
    assert [list(each.shape) for each in norm.meta["val"][1:]] == [[0], [0]]
    assert plan(program, "reject").refusals == ()


def test_a_size_that_depends_on_the_data_and_is_at_least_1_is_left_alone():
    def forward(m, x):
        some = x[x > 0.5]
        torch._check(some.shape[0] > 0)
        return torch.relu(some)

    program = edge_program(Lambda(forward), image())
    assert not [refusal for refusal in plan(program, "reject").refusals if "relu" in str(refusal.nodes)]
