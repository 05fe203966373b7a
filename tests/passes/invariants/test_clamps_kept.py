"""Activations do not get lost, and their bounds become the codes of their bounds."""

import importlib

import pytest
import torch
import torch.nn.functional as F
from breaking import broken_by_mutation, broken_in, check_broken
from folding import edge_of
from lowering import PROFILES, RELEASE, quantize, tosa
from small import Lambda, image

from safe_arm import CORRECTIONS
from safe_arm.core.errors import InvariantError
from safe_arm.passes.invariants.clamps_kept import FUSION, ClampsKept

#: None that keeps stock from fusing.
WITHOUT_FUSION = tuple(c for c in CORRECTIONS if c.name == "hardtanh-defaults")


@pytest.mark.parametrize(
    ("fault", "by", "says"),
    [
        ("relu-dropped", "ConvertToClampPass", "relu_default is gone"),
        ("clamp-dropped", "QuantizeClampArgumentsPass", "clamp_default is gone"),
        ("clamp-high-off-by-one", "QuantizeClampArgumentsPass", "has code"),
        ("clamp-low-is-qmin", "QuantizeClampArgumentsPass", "is bounded by code -128 where -0.25 has code"),
    ],
)
def test_red_for_a_lost_clamp_and_a_wrong_bound(fault, by, says):
    check_broken(broken_by_mutation(fault), "clamps-kept", by, says)


def relu_then(join):
    return quantize(Lambda(lambda m, x: join(F.relu(m.conv(x)), x)), image(), tosa(PROFILES[1]))


@pytest.mark.skipif(RELEASE < (1, 5), reason="stock fuses what saturation does not imply from 1.5 on")
def test_red_for_stock_s_own_lost_relu():
    error = broken_in(relu_then(lambda a, x: torch.cat((a, x), 1)), image(), PROFILES[1], corrections=WITHOUT_FUSION)
    check_broken(error, "clamps-kept", "FuseQuantizedActivationPass", "aten_relu_default is gone")


def test_red_for_a_relu_that_no_quantiser_follows():
    graph_module = edge_of(F.relu, inputs=image()).graph_module
    invariant, (output,) = ClampsKept(), graph_module.graph.output_node().args[0]
    invariant.before(FUSION, graph_module)
    output.replace_all_uses_with(output.args[0])
    graph_module.graph.erase_node(output)
    with pytest.raises(InvariantError, match="aten_relu_default is gone"):
        invariant.after(FUSION, graph_module, None)


@pytest.mark.parametrize("join", [lambda a, x: a, lambda a, x: a + x], ids=["alone", "add"])
def test_quiet_where_saturation_implies_the_clamp(join):
    assert broken_in(relu_then(join), image(), PROFILES[1], corrections=WITHOUT_FUSION) is None


def test_quiet_where_two_clamps_become_one():
    net = Lambda(lambda m, x: torch.cat((F.relu(F.hardtanh(x, -0.5, 0.5)), x), 1))
    assert broken_in(quantize(net, image(), tosa(PROFILES[0])), image()) is None


def reshaped(*bounds):
    """Clamps behind different views of one value, which the propagation of views brings together."""
    sizes = ((2, 3, 4, 5), (4, 6, 5), (5, 4, 6))
    net = Lambda(
        lambda m, x: tuple(x.reshape(s).clamp(*b).transpose(0, 2) for s, b in zip(sizes, bounds, strict=False))
    )
    inputs = (torch.linspace(-3, 3, 120)[None],)
    return quantize(net, inputs, tosa(PROFILES[0])), inputs


def test_quiet_where_equal_clamps_of_one_value_become_one():
    assert broken_in(*reshaped((0, 2), (0, 2), (0, 2))) is None


@pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 has no such fusion")
def test_red_where_one_of_two_different_clamps_is_taken_for_the_other(monkeypatch):
    stock = importlib.import_module("executorch.backends.transforms.fuse_duplicate_users_pass").FuseDuplicateUsersPass
    fusion = stock._build_user_signature

    def signature(self, node):
        whole = fusion(self, node)
        return (node.target,) if whole and "clamp" in str(node.target) else whole

    monkeypatch.setattr(stock, "_build_user_signature", signature)
    check_broken(broken_in(*reshaped((0, 2), (-1, 1))), "clamps-kept", "PropagateViewCopyPermuteUpPass")
