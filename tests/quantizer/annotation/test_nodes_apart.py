"""Nodes are held out of the passes where the target, or the passes, have no right operator for them."""

import pytest
import torch
from executorch.backends.arm.tosa.specification import TosaSpecification
from graph_changes import graph_of
from small import Lambda
from stubborn import exported

from safe_arm.quantizer.annotation.nodes_apart import nodes_apart

INTEGERS = torch.arange(12, dtype=torch.int32).view(3, 4)


@pytest.mark.parametrize(("profile", "expected"), [("TOSA-1.0+INT", []), ("TOSA-1.0+INT+u55", ["floor_divide"])])
def test_integers_are_divided_apart_where_the_target_divides_none(profile, expected):
    model = graph_of(lambda m, x: x // 3, INTEGERS)
    assert list(nodes_apart(model, TosaSpecification.create_from_string(profile))) == expected


def test_norms_of_infinite_order_are_apart_everywhere():
    model = graph_of(lambda m, x: torch.renorm(x, float("inf"), 1, 0.5), INTEGERS.float())
    assert list(nodes_apart(model, TosaSpecification.create_from_string("TOSA-1.0+INT"))) == ["renorm"]


def test_a_net_without_them_has_none():
    model = graph_of(lambda m, x: x / 3 + 1, INTEGERS.float())
    assert nodes_apart(model, TosaSpecification.create_from_string("TOSA-1.0+INT+u55")) == {}


def test_scatters_of_dynamic_sizes_are_apart_everywhere():
    net = Lambda(lambda m, x: x.slice_scatter(x[:, ::2] * 2, 1, step=2))
    model = exported(net, (INTEGERS.float(),), ({0: torch.export.Dim("rows", min=2, max=8)},))
    assert list(nodes_apart(model, TosaSpecification.create_from_string("TOSA-1.0+INT"))) == ["slice_scatter"]
