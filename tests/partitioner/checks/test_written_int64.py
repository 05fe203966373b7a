"""A counter in int64 stays on the CPU, without a warning, and what is beside it does not."""

import warnings

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import PROFILES, check_stocks_bytes, lower_safely, quantize, tosa
from small import Built, Lambda, image
from stepping import called
from stock import stock_lower

from safe_arm.core.errors import DemotionWarning
from safe_arm.partitioner.checks import Context
from safe_arm.partitioner.checks.written_int64 import WrittenInt64

FLOAT = "TOSA-1.0+FP"


def counted(m, x):
    y = m.conv(x) * m.n.float()
    m.n.add_(1)
    return y


def net():
    return Built(counted, conv=torch.nn.Conv2d(4, 4, 1), n=torch.ones(1, dtype=torch.int64)).eval()


def test_stock_dies_at_the_input_of_its_delegate():
    with pytest.raises(Exception, match=r"b_n|An error occurred when running"):  # the second on 1.4
        stock_lower(net(), image(), TOSAPartitioner(tosa(FLOAT)))


@pytest.mark.parametrize("profile", [*PROFILES, FLOAT])
def test_ours_counts_on_the_cpu_and_demotes_nothing(profile):
    module = net()
    if profile != FLOAT:
        module = quantize(module, image(), tosa(profile))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DemotionWarning)
        manager, partitioner = lower_safely(module, image(), tosa(profile))
    refused = [verdict for verdict in partitioner.report.fallbacks if verdict.issue == "T73"]
    assert {verdict.reason for verdict in refused} == {"its input n is int64 and not constant"}
    assert "use int32 or smaller integers there" in " ".join(str(partitioner.report).split())
    assert partitioner.report.macs_delegated == 1
    program = manager.exported_program()
    for _ in range(3):
        called(program, image())
    assert int({**program.state_dict, **program.constants}["n"]) == 4


def test_a_table_of_indices_that_is_constant_is_left_alone():
    graph_module = quantize(Lambda(lambda m, x: x[:, torch.tensor([0, 2])] + 1), image(), tosa(PROFILES[1]))
    check_stocks_bytes(graph_module, image(), tosa(PROFILES[1]))


def test_an_int32_counter_is_left_alone():
    graph = torch.fx.Graph()
    counter = graph.placeholder("b_n")
    node = graph.call_function(torch.ops.aten.add.Tensor, (counter, 1))
    context = Context("reject", written=frozenset({"b_n"}))
    for dtype, is_refused in ((torch.int64, True), (torch.int32, False)):
        counter.meta["val"] = torch.zeros(1, dtype=dtype)
        assert bool(WrittenInt64().refuse(node, context)) == is_refused
