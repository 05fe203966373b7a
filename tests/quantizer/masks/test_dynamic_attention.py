"""Attention over a dynamic length keeps it dynamic."""

import pytest
import torch
import torch.nn.functional as F
from dynamic import lowered
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes, changes_once
from lowering import HISTOGRAM, PROFILES, RELEASE, quantize, tosa
from masked import LOWEST, additive
from rewriting import codes_off
from small import Lambda
from spelled import check_one_exact
from stubborn import calibrated, exported, quantizer_of
from torch import nn

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.quantizer.masks.dynamic_attention import spell_out_dynamic_attention

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
    "one head": lambda m, *qkv: F.scaled_dot_product_attention(*(each[:, 0] for each in qkv)),
    "scaled": lambda m, *qkv: F.scaled_dot_product_attention(*qkv, scale=0.2),
    "causal": lambda m, *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True),
    "boolean": lambda m, q, k, v, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
    "additive": lambda m, q, k, v, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
}


def sizes(name):
    mask = ({2: TOKENS, 3: TOKENS},) if name in ("boolean", "additive") else ()
    return {2: TOKENS}, ({2: TOKENS}, {2: TOKENS}, *mask)


def graph(name):
    return exported(Lambda(NETS[name]), inputs(12, name), sizes(name))


def quantised(name, quantizer_class=SafeTOSAQuantizer):
    quantizer = quantizer_of(quantizer_class, config=HISTOGRAM)
    return calibrated(graph(name), quantizer, [inputs(length, name) for length in (7, 12, 20)])


def test_stock_does_not_get_to_another_length():
    assert isinstance(attempted(quantised, "causal", TOSAQuantizer), Caught)


@pytest.mark.parametrize("name", ["none", "causal", "boolean", "additive"])
def test_ours_takes_other_lengths(name):
    graph_module = quantised(name)
    for length in (12, 20, 7):
        given = inputs(length, name)
        expected = Lambda(NETS[name])(*given)
        assert float((graph_module(*given) - expected).abs().max()) < 0.05 * float(expected.abs().max())


@pytest.mark.filterwarnings("ignore:demoted from")
@pytest.mark.parametrize("name", ["none", "causal", "boolean", "additive"])
def test_a_lowering_says_what_is_left(name):
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
    first, others = sizes(name)  # A converted graph has no variable arguments.
    program = torch.export.export(quantised(name), inputs(12, name), dynamic_shapes=(first, *others))
    lowered(program, partitioner)
    assert partitioner.report.delegates or RELEASE < (1, 5)  # It delegates nothing of a dynamic size.
    assert all(each.reasons for each in partitioner.report.fallbacks)


@pytest.mark.parametrize("name", NETS)
def test_the_float_graph_computes_the_net(name):
    model = graph(name)
    assert changes_once(spell_out_dynamic_attention, model)
    for length in (12, 20):
        torch.testing.assert_close(model(*inputs(length, name)), Lambda(NETS[name])(*inputs(length, name)))


@pytest.mark.parametrize("name", NETS)
def test_fixed_sizes_are_left_alone(name):
    assert not changes(spell_out_dynamic_attention, exported(Lambda(NETS[name]), inputs(12, name)))


def test_grouped_queries_are_left_alone():
    q, k, v = inputs(12)
    net = Lambda(lambda m, *qkv: F.scaled_dot_product_attention(*qkv, enable_gqa=True))
    model = exported(net, (q, k[:, :1], v[:, :1]), sizes(""))
    assert not changes(spell_out_dynamic_attention, model)


LATENTS = nn.Parameter(torch.randn(1, 2, 4, 8, generator=torch.Generator().manual_seed(1)), requires_grad=False)
OTHERS = {
    "query": lambda m, x: F.scaled_dot_product_attention(LATENTS, x, x),
    "computed query": lambda m, x: F.scaled_dot_product_attention(F.layer_norm(LATENTS, (8,)) * 2, x, x),
    "causal query": lambda m, x: F.scaled_dot_product_attention(LATENTS, x, x, is_causal=True),
    "one key for all heads": lambda m, x: F.scaled_dot_product_attention(m.linear(x), x[:, :1], x[:, :1] * 2),
    "one causal key": lambda m, x: F.scaled_dot_product_attention(x, x[:, :1], x[:, :1], is_causal=True),
}


@pytest.mark.parametrize("rule", OTHERS.values(), ids=OTHERS)
def test_the_float_graph_computes_other_attention(rule):
    model = exported(Lambda(rule), inputs(12)[:1])
    assert changes_once(spell_out_dynamic_attention, model)
    torch.testing.assert_close(model(*inputs(12)[:1]), Lambda(rule)(*inputs(12)[:1]))


@pytest.mark.parametrize("name", OTHERS)
def test_stock_raises_on_other_attention(name):
    config = {"config": HISTOGRAM, "quantizer_class": TOSAQuantizer}
    assert isinstance(attempted(quantize, Lambda(OTHERS[name]), inputs(12)[:1], tosa(PROFILES[0]), **config), Caught)


@pytest.mark.parametrize("name", OTHERS)
def test_ours_delegates_other_attention(name):
    quantised = quantize(Lambda(OTHERS[name]), inputs(12)[:1], tosa(PROFILES[0]), config=HISTOGRAM)
    check_one_exact(quantised, inputs(12)[:1], tosa(PROFILES[0]))
    assert codes_off(quantised, lambda m, x: Lambda(OTHERS[name])(x), inputs(12)[:1]) <= 4
