"""Operators that no annotator knows are written with operators that one does, also where they write in place."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from graph_changes import changes_once, graph_of
from lowering import PROFILES, lower, min_max, quantize, targets, tosa
from small import Lambda, image, together
from spelled import Spelling, float_operators

from safe_arm import SafeArmPartitioner
from safe_arm.quantizer.graphs.named_operators import record_names
from safe_arm.quantizer.spellings.spellings import spell_out_operators

INPUTS = image(gain=3.0)
IN_PLACE = {
    "elu": lambda m, x: F.elu(m.conv(x), inplace=True),
    "selu": lambda m, x: F.selu(m.conv(x), inplace=True),
    "celu": lambda m, x: F.celu(m.conv(x), inplace=True),
    "mish": lambda m, x: F.mish(m.conv(x), inplace=True),
    "hardsigmoid": lambda m, x: F.hardsigmoid(m.conv(x), inplace=True),
    "sigmoid": lambda m, x: m.conv(x).sigmoid_(),
    "tanh": lambda m, x: m.conv(x).tanh_(),
    "clamp": lambda m, x: m.conv(x).clamp_(-0.2, 0.3),
    "behind another write": lambda m, x: F.elu(m.conv(x).add_(m.conv_b(x)), inplace=True),
    "bound": lambda m, x: m.conv(x).clamp_min_(0.1),
}


def read_before(m, x):
    y = m.conv(x)
    z = torch.relu(y)
    return y.sigmoid_() + z


class TestInPlace(Spelling):
    inputs = INPUTS
    written = IN_PLACE
    kept: ClassVar = {
        "what is written is read elsewhere": read_before,
        "an input is written": lambda m, x: x.sigmoid_() + 1,
        "a view is written": lambda m, x: m.conv(x).flatten(2).sigmoid_(),
        "stock knows it": lambda m, x: F.relu(m.conv(x), inplace=True),
    }


def test_what_is_written_has_the_name_and_the_module_of_the_operator():
    model = graph_of(lambda m, x: F.mish(m.conv(x)))
    record_names(model)
    mish = next(node for node in model.graph.nodes if "mish" in str(node.target))
    marks = {key: mish.meta[key] for key in ("custom", "nn_module_stack")}
    spell_out_operators(model)
    written = [node for node in model.graph.nodes if node.meta.get("custom") == marks["custom"]]
    assert len(written) == 8
    assert "mish" not in model.code
    assert all(node.meta["nn_module_stack"] == marks["nn_module_stack"] for node in written)


def test_a_branch_is_written_too():
    def rule(m, x):
        return torch.cond(x.sum() > 0, lambda y: y.square(), lambda y: F.mish(y), (x,))

    model = graph_of(rule)
    expected = model(*INPUTS)
    assert changes_once(spell_out_operators, model) or "square" not in str(model.true_graph_0.graph)
    torch.testing.assert_close(model(*INPUTS), expected)
    assert "mish" not in str(model.false_graph_0.graph)


def test_nothing_of_ours_stays_float():
    assert float_operators(Lambda(IN_PLACE["mish"]), INPUTS) == []
    quantised = quantize(Lambda(IN_PLACE["elu"]), INPUTS, tosa(PROFILES[0]), config=min_max())
    assert "elu" in targets(quantised)


NORMAL = (torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0)),)
COSTLY = {
    "sum with a product": lambda m, x: torch.addcmul(x, x, x.abs(), value=0.5) + x,
    "on the way to another": lambda m, x: torch.lerp(x, torch.relu(x), 0.3) + x,
    "root mean square norm": lambda m, x: torch.nn.functional.rms_norm(x, x.shape[-1:]) + x,
    "standard deviation": lambda m, x: x.std(1, keepdim=True) + x,
}


@pytest.mark.parametrize("name", COSTLY)
def test_what_int8_costs_a_decibel_stays_float_where_the_profile_has_float(name):
    assert float_operators(Lambda(COSTLY[name]), NORMAL, PROFILES[0]) == []
    assert float_operators(Lambda(COSTLY[name]), NORMAL, PROFILES[1]) != []


def test_in_such_a_profile_it_is_in_the_one_delegate():
    partitioner = SafeArmPartitioner(tosa(PROFILES[1]), verify=True)
    lower(quantize(Lambda(together(COSTLY)), NORMAL, tosa(PROFILES[1]), config=min_max()), NORMAL, partitioner)
    assert partitioner.report.fallbacks == ()
    assert [each.verified for each in partitioner.report.verifications] == [True]
