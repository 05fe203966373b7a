"""The history of nodes is not recorded in our delegates, is if asked for, and stock's always is."""

import pytest
import torch
import torch.fx.traceback as fx_traceback
from lowering import PROFILES, delegates, lower, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner
from safe_arm._compat import provenance
from safe_arm._compat.upstream import TOSABackend, TOSAPartitioner


@pytest.fixture
def recorded(monkeypatch):
    """Counts the entries of history made while the backend runs."""
    made = []
    inside = []
    init = fx_traceback.NodeSource.__init__
    preprocess = TOSABackend._preprocess

    def counting(self, *args, **kwargs):
        if inside:
            made.append(self)
        return init(self, *args, **kwargs)

    def run(*args):
        inside.append(True)
        try:
            return preprocess(*args)
        finally:
            inside.pop()

    monkeypatch.setattr(fx_traceback.NodeSource, "__init__", counting)
    monkeypatch.setattr(TOSABackend, "_preprocess", staticmethod(run))
    return made


def lowered(partitioner):
    net = Lambda(lambda m, x: torch.relu(m.conv(x)) + x)
    return delegates(lower(quantize(net, image(), tosa(PROFILES[0])), image(), partitioner))


def test_ours_records_none_and_the_bytes_are_the_same(recorded):
    fast = lowered(SafeArmPartitioner(tosa(PROFILES[0])))
    assert recorded == []
    assert lowered(SafeArmPartitioner(tosa(PROFILES[0]), keep_provenance=True)) == fast
    assert recorded


def test_stock_s_is_recorded_beside_ours(recorded):
    lowered(SafeArmPartitioner(tosa(PROFILES[0])))
    assert recorded == []
    lowered(TOSAPartitioner(tosa(PROFILES[0])))
    assert recorded


def test_the_user_s_lines_stay():
    module = torch.export.export(Lambda(lambda m, x: torch.relu(m.conv(x))), image()).module(check_guards=False)
    stacks = [n.meta.get("stack_trace") for n in module.graph.nodes]
    with provenance.dropped(module):
        assert [n.meta.get("stack_trace") for n in module.graph.nodes] == stacks
        assert not any(provenance.HISTORY_KEY in n.meta for n in module.graph.nodes)
