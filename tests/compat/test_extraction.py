"""Programs are cut into delegates as they are, names and all, and no check of the edge dialect meets those."""

import copy

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.exir.error import InternalError
from lowering import PROFILES, codes_apart, min_max, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner
from safe_arm._compat.extraction import with_graph

SCALARS = {
    "mean": lambda m, x: x.mean(),
    "element": lambda m, x: torch.sigmoid(x)[0, 0, 0, 0],
    "two": lambda m, x: (x.amax(), torch.relu(x).sum()),
}


@pytest.mark.parametrize("net", SCALARS.values(), ids=SCALARS)
def test_scalars_are_delegated_where_the_config_asks_for_checks(net):
    graph_module = quantize(Lambda(net), image(), tosa(PROFILES[0]), config=min_max())

    def by(partitioner):
        exported, config = torch.export.export(graph_module, image()), EdgeCompileConfig()
        return to_edge_transform_and_lower(exported, partitioner=[partitioner], compile_config=config)

    with pytest.raises(InternalError):
        by(TOSAPartitioner(tosa(PROFILES[0])))
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
    manager = by(partitioner)
    assert (partitioner.report.fallbacks, codes_apart(manager, graph_module, image(1))) == ((), 0)


def test_a_copy_keeps_the_names_of_its_inputs():
    """A module of torch's calls its input ``input``; a graph that is copied names that anew."""
    program = torch.export.export(torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()), (torch.randn(1, 8),))
    copied = with_graph(program, copy.deepcopy(program.graph_module), program.state_dict)
    assert [node.name for node in copied.graph.nodes] == [node.name for node in program.graph.nodes]
    assert copied.graph.find_nodes(op="placeholder")[-1].name == "input"
    assert torch.equal(copied.module()(torch.ones(1, 8)), program.module()(torch.ones(1, 8)))
