"""The history of nodes is not recorded in our delegates, is if asked for, and stock's always is."""

import contextlib
import itertools
import json

import pytest
import torch
import torch.fx.traceback as fx_traceback
from lowering import PROFILES, delegates, lower, quantize, tosa
from patches_of import patched
from small import Lambda, image

from safe_arm import SafeArmPartitioner, seams
from safe_arm._compat.upstream import TOSABackend, TOSAPartitioner
from safe_arm.acceleration import provenance


@pytest.fixture
def recorded(monkeypatch):
    """Counts the entries of history made while the backend runs; what ours patches stays patched behind the test."""
    seams.install()
    sources = []
    inside = []
    init = fx_traceback.NodeSource.__init__
    preprocess = TOSABackend._preprocess

    def counting(self, *args, **kwargs):
        if inside:
            sources.append(self)
        return init(self, *args, **kwargs)

    def run(*args):
        inside.append(True)
        try:
            return preprocess(*args)
        finally:
            inside.pop()

    monkeypatch.setattr(fx_traceback.NodeSource, "__init__", counting)
    monkeypatch.setattr(TOSABackend, "_preprocess", staticmethod(run))
    return sources


def lowered(partitioner):
    net = Lambda(lambda m, x: torch.relu(m.conv(x)) + x)
    return delegates(lower(quantize(net, image(), tosa(PROFILES[0])), image(), partitioner))


def test_ours_records_none_and_the_bytes_are_the_same(recorded):
    fast = lowered(SafeArmPartitioner(tosa(PROFILES[0])))
    assert recorded == []
    assert lowered(SafeArmPartitioner(tosa(PROFILES[0]), keep_provenance=True)) == fast
    assert recorded
    recorded.clear()
    lowered(TOSAPartitioner(tosa(PROFILES[0])))
    assert recorded


def test_the_user_s_lines_stay():
    module = torch.export.export(Lambda(lambda m, x: torch.relu(m.conv(x))), image()).module(check_guards=False)
    stacks = [n.meta.get("stack_trace") for n in module.graph.nodes]
    with provenance.dropped(module):
        assert [n.meta.get("stack_trace") for n in module.graph.nodes] == stacks
        assert not any(provenance.HISTORY_KEY in n.meta for n in module.graph.nodes)


def debug_info(partitioner_class, folder):
    """The nodes' histories in the debug info that the backend writes, with graphs numbered by appearance."""
    spec = tosa(PROFILES[0]).dump_intermediate_artifacts_to(str(folder))
    spec.dump_debug_info(type(spec).DebugMode.JSON)
    net = Lambda(lambda m, x: torch.relu(m.conv(x)) + x)
    lower(quantize(net, image(), spec), image(), partitioner_class(spec))
    text = next(folder.glob("**/debug.json")).read_text()
    numbers = itertools.count()
    graphs: dict[int, int] = {}

    def numbered(entry):
        for key in ("graph_id", "parent_graph_id"):
            if entry.get(key, -1) != -1:
                entry[key] = graphs.setdefault(entry[key], next(numbers))
        return entry

    return json.loads(text, object_hook=numbered), text


def test_debug_info_maps_to_the_user_s_lines_as_stock_s_does(tmp_path):
    stock, _ = debug_info(TOSAPartitioner, tmp_path / "stock")
    ours, text = debug_info(SafeArmPartitioner, tmp_path / "ours")
    assert ours == stock
    assert "node_trace" in text
    assert "in forward" in text


def test_shared_histories_are_those_torch_records():
    module = torch.export.export(Lambda(lambda m, x: torch.relu(m.conv(x))), image()).module(check_guards=False)
    recorders = (contextlib.nullcontext, provenance.shared)
    with patched(provenance):
        histories = []
        for recorder in recorders:
            with recorder(), fx_traceback.preserve_node_meta():
                histories.append([])
                for node in module.graph.nodes:
                    with fx_traceback.set_current_meta(node, "a pass"):
                        histories[-1].append(fx_traceback.current_meta.get(provenance.HISTORY_KEY))
    assert histories[0] == histories[1]
    assert any(history and history[0].from_node for history in histories[1])
