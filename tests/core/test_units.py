"""Units: whole quantised operators, in an order whose every prefix could be a delegate."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from lowering import PROFILES, edge_program, quantize, tosa
from small import Lambda, image, marked, qdq

from safe_arm.core.island import op_name
from safe_arm.core.units import computes, units_of


def units(module, inputs, *, float_borders, quantised=True):
    graph_module = quantize(module, inputs, tosa(PROFILES[0])) if quantised else module
    nodes = [n for n in edge_program(graph_module, inputs).graph.nodes if n.op == "call_function"]
    return units_of(nodes, float_borders=float_borders)


def kernels(found):
    names = [[op_name(n) for n in sorted(unit)] for unit in found]
    short = [[name.split("::")[1] for name in unit if name and "quantize_per" not in name] for unit in names]
    return [names for names in short if names]


@pytest.mark.parametrize("float_borders", [False, True], ids=["INT", "INT+FP"])
def test_a_convolution_and_its_relu_are_one_unit_and_an_add_is_another(float_borders):
    net = Lambda(lambda m, x: F.relu(m.conv_b(F.relu(m.conv(x)))) + x)
    found = units(net, image(), float_borders=float_borders)
    assert kernels(found) == [["convolution", "relu"], ["convolution", "relu"], ["add"]]
    for unit in found:
        if computes(unit):
            names = {op_name(n).split("::")[1] for n in unit}
            assert {"quantize_per_tensor", "dequantize_per_tensor"} <= names


def test_floats_may_part_where_the_profile_lets_them_cross():
    net = nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)).eval()
    apart = kernels(units(net, image(), float_borders=True, quantised=False))
    assert apart == [["convolution"], ["relu"], ["convolution"]]
    assert len(units(net, image(), float_borders=False, quantised=False)) == 1


def test_a_tuple_stays_with_who_picks_from_it():
    net = Lambda(lambda m, x: torch.max_pool2d(m.conv(x), 2))
    assert ["max_pool2d_with_indices"] in kernels(units(net, image(), float_borders=False))


def test_readers_of_one_dequantised_value_leave_together():
    def forward(m, x):
        y = qdq(x, 0.02, 0)
        return qdq(y + qdq(torch.sigmoid(y), 0.02, 0), 0.04, 0)

    found = units(marked(Lambda(forward), image()), image(), float_borders=False, quantised=False)
    assert kernels(found) == [["sigmoid", "add"]]


def test_every_prefix_is_closed_under_its_inputs():
    net = Lambda(lambda m, x: torch.cat((F.relu(m.conv(x)), torch.sigmoid(m.conv_b(x) * x), x), 1))
    found = units(net, image(), float_borders=False)
    inside = frozenset().union(*found)
    assert sum(map(len, found)) == len(inside)
    before = set()
    for unit in found:
        before |= unit
        assert all(a in before for node in unit for a in node.all_input_nodes if a in inside)
