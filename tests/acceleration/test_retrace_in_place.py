"""View and permute propagation re-traces once, however deep the net, and leaves the same bytes."""

import pytest
import torch
import torch.nn.functional as F
from lowering import PROFILES, delegates, lower, quantize, tosa
from prepared import Prepared
from small import Lambda, Residual, image
from spying import raising

from safe_arm import SafeArmPartitioner
from safe_arm._compat.upstream import ExportPass
from safe_arm.acceleration.retrace_in_place import RetracesInPlace, in_place
from safe_arm.passes import manager


def retraces(monkeypatch, module, partitioner):
    """How often passes that move views and permutes re-trace a graph while a net is lowered, and the bytes."""
    counted = []
    call = ExportPass.call

    def spy(self, graph_module):
        if type(self).__name__.startswith("PropagateViewCopyPermute"):
            counted.append(type(self).__name__)
        return call(self, graph_module)

    with monkeypatch.context() as patch:
        patch.setattr(ExportPass, "call", spy)
        manager_of = lower(quantize(module.eval(), image(), tosa(PROFILES[0])), image(), partitioner)
    return len(counted), delegates(manager_of)


NETS = {
    "residual": Residual(3),
    "cat and slice": Lambda(lambda m, x: torch.cat((m.conv(x), torch.sigmoid(x)), 1)[:, 1:5]),
    "permute and view": Lambda(lambda m, x: m.linear(m.conv(x).permute(0, 2, 3, 1).reshape(1, 32, 8)).flatten(1)),
    "pooling": Lambda(lambda m, x: F.avg_pool2d(F.relu(m.conv(x)), 2).mean((2, 3), keepdim=True) * x),
    "matmul": Lambda(lambda m, x: torch.matmul(m.conv(x), x.transpose(2, 3)).softmax(-1)),
    "no view at all": Lambda(lambda m, x: torch.tanh(x) + x),
}


@pytest.mark.parametrize("name", NETS)
def test_the_bytes_are_those_of_the_re_tracing_pass(name, profile, monkeypatch):
    net = Prepared(NETS[name].eval(), profile)
    fast = delegates(net.lowered(net.partitioner(verify=False)))
    monkeypatch.setattr(manager, "ACCELERATIONS", ())
    slow = delegates(net.lowered(net.partitioner(verify=False, keep_provenance=True)))
    assert fast == slow
    assert fast


def test_an_operator_without_a_kernel_falls_back_to_the_real_re_trace(monkeypatch):
    expected = retraces(monkeypatch, Residual(3), SafeArmPartitioner(tosa(PROFILES[0]), verify=False))[1]
    monkeypatch.setattr("safe_arm.acceleration.retrace_in_place._revalued", raising(NotImplementedError))
    count, actual = retraces(monkeypatch, Residual(3), SafeArmPartitioner(tosa(PROFILES[0]), verify=False))
    assert actual == expected
    assert count > 2


def test_a_pass_keeps_its_name_and_its_state():
    class Stock:
        def __init__(self) -> None:
            self.state = [1]

    stock = Stock()
    ours = in_place(stock)
    assert (type(ours).__name__, ours.state) == ("Stock", [1])
    assert isinstance(ours, (Stock, RetracesInPlace))
    assert type(stock) is Stock
