"""Attention over a dynamic length keeps it dynamic."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from executorch.exir import to_edge_transform_and_lower
from graph_changes import changes, changes_once
from lowering import EDGE, PROFILES, tosa
from masked import LOWEST, Masked, additive
from stubborn import calibrated

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.quantizer.dynamic_attention import spell_out_dynamic_attention

TOKENS = torch.export.Dim("tokens", min=2, max=32)


def inputs(length, mask=""):
    """Query, key and value of one length, and a causal mask if it is an input."""
    generator = torch.Generator().manual_seed(length)
    tokens = tuple(torch.randn(1, 2, length, 8, generator=generator) for _ in range(3))
    allowed = torch.ones(1, 1, length, length, dtype=torch.bool).tril()
    masks = {"boolean": (allowed,), "additive": (additive(LOWEST, allowed),)}
    return tokens + masks.get(mask, ())


NETS = {
    "none": lambda m, *qkv: F.scaled_dot_product_attention(*qkv),
    "scaled": lambda m, *qkv: F.scaled_dot_product_attention(*qkv, scale=0.2),
    "causal": lambda m, *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True),
    "boolean": lambda m, q, k, v, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
    "additive": lambda m, q, k, v, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
}


class Net(Masked):
    def forward(self, q, k, v):
        return self.rule(self, q, k, v)


class NetWithMask(Masked):
    def forward(self, q, k, v, mask):
        return self.rule(self, q, k, v, mask)


def net_of(name):
    return (NetWithMask if name in ("boolean", "additive") else Net)(NETS[name]).eval()


def sizes(name):
    dynamic = {each: {2: TOKENS} for each in "qkv"}
    if name in ("boolean", "additive"):
        dynamic["mask"] = {2: TOKENS, 3: TOKENS}
    return dynamic


def graph(name):
    program = torch.export.export(net_of(name), inputs(12, name), dynamic_shapes=sizes(name))
    return program.module(check_guards=False)


def quantised(name, quantizer_class=SafeTOSAQuantizer):
    quantizer = quantizer_class(tosa(PROFILES[0]))
    quantizer.set_global(get_symmetric_quantization_config())
    return calibrated(graph(name), quantizer, [inputs(length, name) for length in (7, 12, 20)])


def test_stock_does_not_get_to_another_length():
    assert isinstance(attempted(quantised, "causal", TOSAQuantizer), Caught)


@pytest.mark.parametrize("name", ["none", "causal", "boolean", "additive"])
def test_ours_takes_other_lengths(name):
    graph_module = quantised(name)
    for length in (12, 20, 7):
        given = inputs(length, name)
        expected = net_of(name)(*given)
        assert float((graph_module(*given) - expected).abs().max()) < 0.05 * float(expected.abs().max())


@pytest.mark.filterwarnings("ignore:demoted from")
@pytest.mark.parametrize("name", ["none", "causal", "boolean", "additive"])
def test_a_lowering_says_what_is_left(name):
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
    program = torch.export.export(quantised(name), inputs(12, name), dynamic_shapes=sizes(name))
    to_edge_transform_and_lower(program, partitioner=[partitioner], compile_config=EDGE)
    assert partitioner.report.delegates
    assert all(each.reasons for each in partitioner.report.fallbacks)


@pytest.mark.parametrize("name", NETS)
def test_the_float_graph_computes_the_net(name):
    model = graph(name)
    assert changes(spell_out_dynamic_attention, model)
    for length in (12, 20):
        torch.testing.assert_close(model(*inputs(length, name)), net_of(name)(*inputs(length, name)))


@pytest.mark.parametrize("name", NETS)
def test_fixed_sizes_are_left_alone(name):
    program = torch.export.export(net_of(name), inputs(12, name))
    assert not changes(spell_out_dynamic_attention, program.module(check_guards=False))


def test_grouped_queries_are_left_alone():
    q, k, v = inputs(12)
    net = Net(lambda m, *qkv: F.scaled_dot_product_attention(*qkv, enable_gqa=True)).eval()
    program = torch.export.export(net, (q, k[:, :1], v[:, :1]), dynamic_shapes=sizes(""))
    assert not changes(spell_out_dynamic_attention, program.module(check_guards=False))


def test_twice_equals_once():
    assert changes_once(spell_out_dynamic_attention, graph("causal"))
