"""A fingerprint changes with everything a lowering depends on, and with nothing else."""

import copy
from functools import cache

import pytest
import torch
from lowering import edge_program
from small import Lambda, image

from safe_arm._compat.upstream import CompileSpec
from safe_arm.partitioner.fingerprint import fingerprint


@cache
def program():
    net = Lambda(lambda m, x: torch.cat((m.conv(x) * m.constant, torch.cond(x.any(), torch.sin, torch.cos, (x,))), 1))
    net.constant = torch.full((1,), 2.0)
    return edge_program(net, image())


SPECS = [CompileSpec("tosa_spec", b"TOSA-1.0+INT")]


def node_of(edge, name):
    return next(n for n in edge.graph.nodes if name in n.name)


def change(edge, name, attribute, value):
    setattr(node_of(edge, name), attribute, value)


CHANGES = {
    "weight": lambda edge: edge.state_dict["conv.weight"].data.flatten()[0].add_(1),
    "constant": lambda edge: next(iter(edge.constants.values())).add_(1),
    "argument": lambda edge: change(edge, "cat", "args", (node_of(edge, "cat").args[0], 2)),
    "swapped inputs": lambda edge: change(edge, "cat", "args", (node_of(edge, "cat").args[0][::-1], 1)),
    "operator": lambda edge: change(edge, "mul", "target", node_of(edge, "cat").target),
    "branch": lambda edge: change(edge.graph_module.submodule_0, "sin", "target", node_of(edge, "cat").target),
    "dtype": lambda edge: node_of(edge, "convolution").meta.update(val=torch.zeros(1, 4, 8, 8, dtype=torch.float16)),
    "mark": lambda edge: node_of(edge, "convolution").meta.update(custom={"_arm_annotation_info": {"quantized": True}}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_shows(name):
    edge = copy.deepcopy(program())
    before = fingerprint(edge, SPECS)
    CHANGES[name](edge)
    assert fingerprint(edge, SPECS) != before


def test_another_compile_spec_shows_and_a_copy_or_another_export_does_not():
    assert fingerprint(program(), SPECS) != fingerprint(program(), [CompileSpec("tosa_spec", b"TOSA-1.0+FP")])
    again = program.__wrapped__()
    assert fingerprint(program(), SPECS) == fingerprint(copy.deepcopy(program()), SPECS) == fingerprint(again, SPECS)


def test_the_layout_of_an_input_counts_and_names_of_values_do_not():
    edge = copy.deepcopy(program())
    before = fingerprint(edge, SPECS)
    node_of(edge, "mul").name = "something_else"
    assert fingerprint(edge, SPECS) == before
    net, (x,) = Lambda(lambda m, x: x + 1), image()
    layouts = (torch.contiguous_format, torch.channels_last)
    rows, channels = (edge_program(net, (x.to(memory_format=layout),)) for layout in layouts)
    assert fingerprint(rows, SPECS) == fingerprint(edge_program(net, (x,)), SPECS) != fingerprint(channels, SPECS)
