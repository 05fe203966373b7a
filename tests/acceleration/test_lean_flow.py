"""The edge program is what ExecuTorch makes of it, node by node, in fewer traces; other partitioners are left alone."""

import functools

import pytest
import torch
import torch.nn.functional as F
from executorch.exir.program import _program
from lowering import EDGE, PROFILES, delegates, lower_program, quantize, tosa
from small import Lambda, image, looks
from spying import noted
from torch.fx import Graph

from safe_arm import SafeArmPartitioner, seams
from safe_arm._compat.upstream import TOSAPartitioner
from safe_arm.acceleration import provenance

NETS = {
    "residual": lambda m, x: F.relu(m.conv(x) + x),
    "linear and silu": lambda m, x: F.silu(m.linear(x)),
    "pad, in place": lambda m, x: F.pad(m.conv(x).relu_().mul_(2), (1, 1)),
    "attention": lambda m, x: F.scaled_dot_product_attention(x, x, m.conv(x)),
    "list results": lambda m, x: torch.stack(m.conv(x).chunk(2, 1)).softmax(-1),
    "constants": lambda m, x: m.conv(x) * torch.arange(8.0) + torch.linspace(0, 1, 8),
    "hardswish, upsampled": lambda m, x: F.interpolate(F.hardswish(m.conv(x)), scale_factor=2.0),
}


def edge(program, partitioner):
    """The edge program as a partitioner gets to see it."""
    manager = _program._gen_edge_manager_for_partitioners({"forward": [partitioner]}, {"forward": program}, EDGE, None)
    return manager.exported_program()


def described(program):
    nodes = [
        (n.name, n.op, str(n.target), str(n.args), str(n.kwargs), looks(n.meta.get("val")), n.meta.get("stack_trace"))
        for n in program.graph.nodes
    ]
    return nodes, str(program.graph_signature), list(program.constants), list(program.state_dict)


def of_net(name, profile):
    return torch.export.export(quantize(Lambda(NETS[name]), image(), tosa(profile)), image())


@pytest.mark.parametrize("name", NETS)
def test_the_program_is_the_one_executorch_makes(name, profile):
    program = of_net(name, profile)
    ours = described(edge(program, SafeArmPartitioner(tosa(profile))))
    asked_for_provenance = SafeArmPartitioner(tosa(profile), keep_provenance=True)
    assert described(edge(program, asked_for_provenance)) == ours


def test_one_decomposition_for_ours_three_for_stock_and_for_a_mixture(monkeypatch):
    program = of_net("residual", PROFILES[0])
    seams.install()
    traced = noted(monkeypatch, torch.export.exported_program, "_decompose_exported_program")
    counts = []
    for partitioners in (
        [SafeArmPartitioner(tosa(PROFILES[0]))],
        [TOSAPartitioner(tosa(PROFILES[0]))],
        [SafeArmPartitioner(tosa(PROFILES[0])), TOSAPartitioner(tosa(PROFILES[0]))],
    ):
        traced.clear()
        _program._gen_edge_manager_for_partitioners({"forward": partitioners}, {"forward": program}, EDGE, None)
        counts.append(len(traced))
    assert counts == [1, 3, 5]


def test_the_history_of_a_node_still_ends_in_the_user_s_program():
    program = of_net("residual", PROFILES[0])
    names = {node.name for node in program.graph.nodes}
    for node in edge(program, SafeArmPartitioner(tosa(PROFILES[0]))).graph.nodes:
        if node.op != "call_function":
            continue
        source = node.meta[provenance.HISTORY_KEY][-1]
        while source.from_node:
            source = source.from_node[-1]
        assert source.name in names or source.graph_id != id(program.graph)


def test_cutting_into_many_delegates_writes_no_code_for_each(monkeypatch):
    def parts(count):
        return lambda m, x: functools.reduce(lambda y, _: m.conv(y).i0(), range(count), x)

    written = noted(monkeypatch, Graph, "python_code")
    counts = []
    for count in (2, 6):
        program = torch.export.export(quantize(Lambda(parts(count)), image(), tosa(PROFILES[0])), image())
        written.clear()
        partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
        manager = lower_program(program, partitioner)
        assert len(delegates(manager)) == count
        counts.append(len(written))
    # Two are left in the delegate itself; the program round it, which grows with their number, is never written out.
    assert counts[1] - counts[0] <= 2 * 4
