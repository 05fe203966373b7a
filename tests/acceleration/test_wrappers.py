"""A quantiser takes the shortcuts before there is a partitioner, and makes the same graph."""

import pytest
from small import Lambda, image
from spying import noted
from stubborn import transformed
from torch.fx import Graph

from safe_arm import SafeTOSAQuantizer, seams
from safe_arm.acceleration.switch import SWITCH


@pytest.fixture
def nothing_installed():
    seams.uninstall()
    yield
    seams.uninstall()
    seams.install()


@pytest.mark.usefixtures("nothing_installed")
def test_a_quantiser_writes_little_code_and_makes_the_same_graph(monkeypatch):
    net = Lambda(lambda m, x: m.conv_b(m.conv(x).relu() + x).flatten(2).softmax(-1))
    written, graphs, counts = noted(monkeypatch, Graph, "python_code"), [], []
    for value in ("0", "1"):
        monkeypatch.setenv(SWITCH, value)
        written.clear()
        graph = transformed(net, SafeTOSAQuantizer, image()).graph
        counts.append(len(written))
        graphs.append([f"{node.format_node()} {node.meta.get('val')}" for node in graph.nodes])
    assert graphs[0] == graphs[1]
    assert counts[1] * 4 < counts[0]
