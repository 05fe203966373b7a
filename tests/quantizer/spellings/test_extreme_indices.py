"""An index that is read without its value is an index when a net is made ready for quantisation too."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from graph_changes import graph_of
from lowering import PROFILES, codes_apart, delegates, lower_safely, quantize, tosa
from rewriting import Rewriting
from small import Lambda
from stubborn import exported, transformed

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.island import call_functions
from safe_arm.quantizer.spellings.extreme_indices import name_extreme_indices

X = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(3))
IMAGE = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(3))
TABLE = torch.randn(16, 5, generator=torch.Generator().manual_seed(4))
#: Operators that return a value and its index, of a tensor of 8 values in each row.
PAIRS = {
    "max": lambda x: x.max(-1),
    "max kept": lambda x: x.max(2, keepdim=True),
    "max by name": lambda x: torch.max(x, dim=2),
    "min": lambda x: x.min(-1),
    "min of rows": lambda x: x.min(0, True),
    "kthvalue": lambda x: x.kthvalue(3),
    "mode": lambda x: x.mode(-1),
    "median": lambda x: x.median(-1),
    "nanmedian": lambda x: x.nanmedian(-1),
    "topk": lambda x: x.topk(3),
    "sort": lambda x: torch.sort(x, dim=-1, stable=True),
    "cummax": lambda x: x.cummax(-1),
    "cummin": lambda x: x.cummin(-1),
    "max of booleans": lambda x: (x > 0).max(-1),
    "max of integers": lambda x: (x * 100).to(torch.int32).max(-1),
}
#: Which results are read, and in which order.
READS = {
    "value": lambda value, index: value,
    "index": lambda value, index: index,
    "both": lambda value, index: (value, index),
    "both, index first": lambda value, index: (index, value),
    "index of a shifted value": lambda value, index: (index + 1, value.float() * 2),
}
#: What may read an index alone.
CONSUMERS = {
    "one_hot": lambda x, index: F.one_hot(index, 8),
    "one_hot of floats": lambda x, index: F.one_hot(index, 8).float() * 0.5,
    "embedding": lambda x, index: F.embedding(index, TABLE),
    "comparison": lambda x, index: index == 3,
    "two comparisons": lambda x, index: (index > 1) & (index < 5),
    "float": lambda x, index: index.float() * 0.25,
    "sum": lambda x, index: index + 2,
    "index": lambda x, index: TABLE[index],
    "take": lambda x, index: TABLE[:8, 0].take(index),
    "gather": lambda x, index: x.flatten().gather(0, index.flatten()),
    "where": lambda x, index: torch.where(index > 2, index, torch.zeros_like(index)),
}
POOLS = {
    "max_pool2d": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "strided max_pool2d": lambda x: F.max_pool2d(x, 3, stride=2, padding=1, return_indices=True),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 4, return_indices=True),
    "max_pool1d": lambda x: F.max_pool1d(x[0], 2, return_indices=True),
}


def check_same(rule, *inputs):
    """Compare what is annotated with the net: integers to the bit, floats to their rounding."""
    wanted = rule(None, *inputs)
    given = transformed(Lambda(rule), SafeTOSAQuantizer, inputs)(*inputs)
    pairs = zip(wanted, given, strict=True) if isinstance(wanted, tuple) else ((wanted, given),)
    for one, other in pairs:
        assert (other.dtype, other.shape) == (one.dtype, one.shape)
        if one.is_floating_point():
            torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(other, one)


@pytest.mark.parametrize("name", ["max", "min"])
def test_stock_returns_the_value_for_the_index(name):
    given = transformed(Lambda(lambda m, x: PAIRS[name](x)[1]), TOSAQuantizer, (X,))(X)
    assert torch.equal(given, PAIRS[name](X)[0])


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("name", [*PAIRS, *POOLS])
def test_ours_returns_what_is_read(name, read):
    pair, x = (POOLS[name], IMAGE) if name in POOLS else (PAIRS[name], X)
    check_same(lambda m, x: read(*pair(x)), x)


def test_a_pool_is_undone():
    check_same(lambda m, x: F.max_unpool2d(*POOLS["max_pool2d"](x), 2), IMAGE)


@pytest.mark.parametrize("consumer", CONSUMERS.values(), ids=CONSUMERS)
@pytest.mark.parametrize("name", ["max", "min", "median", "topk", "kthvalue"])
def test_an_index_can_be_read_by(name, consumer):
    check_same(lambda m, x: consumer(x, PAIRS[name](x)[1]), X)


def inner(x):
    return torch.cond(x.sum() > 4, lambda x: x.max(-1)[1], lambda x: x.min(-1)[1], (x,))


#: Indices in a branch and in a branch of a branch.
BRANCHES = Lambda(lambda m, x: torch.cond(x.sum() > 0, inner, lambda x: torch.min(x, 2)[1] + 1, (x,)))


@pytest.mark.parametrize("gain", [1.0, 0.01, -1.0])
def test_branches_return_indices_too(gain):
    x = gain * X.abs()
    model = exported(BRANCHES, (x,))
    name_extreme_indices(model)
    assert not {node.target for node in call_functions(model)} & {torch.ops.aten.max.dim, torch.ops.aten.min.dim}
    for graph_module in (model, quantize(BRANCHES, (x,), tosa(PROFILES[0]))):
        assert torch.equal(graph_module(x), BRANCHES(x))


def with_ties(dtype):
    """Numbers of which some are alike, and of floats some are not finite or zeros of either sign."""
    numbers = torch.randint(0, 4, (6, 5, 37), generator=torch.Generator().manual_seed(5)).to(dtype)
    if dtype.is_floating_point:
        for at, value in enumerate((float("nan"), float("inf"), -float("inf"), -0.0)):
            numbers[:, at, at :: at + 3] = value
    return numbers


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.int8, torch.int32, torch.int64])
def test_both_operators_return_the_first_of_what_is_alike(dtype, dim, keepdim):
    for x in (with_ties(dtype), with_ties(dtype).transpose(0, 2)):
        assert torch.equal(x.max(dim, keepdim)[1], x.argmax(dim, keepdim))
        assert torch.equal(x.min(dim, keepdim)[1], x.argmin(dim, keepdim))


@pytest.mark.parametrize("name", ["max", "min", "max kept"])
def test_a_head_returns_the_float_net_s_labels(name):
    """It is delegated from 1.5 on."""
    net = Lambda(lambda m, x: PAIRS[name](m.linear(x))[1])
    graph_module = quantize(net, (X,), tosa(PROFILES[0]))
    manager, partitioner = lower_safely(graph_module, (X,), tosa(PROFILES[0]))
    assert len(delegates(manager)) == 1
    on_cpu = [each.op for each in partitioner.report.fallbacks]
    delegated = hasattr(TOSAPartitioner, "transform_for_pre_decomposition")
    assert (f"aten::arg{name[:3]}" in on_cpu) != delegated
    assert codes_apart(manager, graph_module, (X,)) == 0
    apart = graph_module(X) != net(X)
    ranks = net.linear(X).sort(-1, descending=name != "min")[0]
    step = (net.linear(X).max() - net.linear(X).min()) / 255
    near = ((ranks[..., 0] - ranks[..., 1]).abs() < 2 * step).view(apart.shape)
    assert not (apart & ~near).any()
    assert float(apart.float().mean()) < 0.1


class TestIndices(Rewriting):
    step = staticmethod(name_extreme_indices)
    inputs = (X,)
    written: ClassVar = {
        "two": lambda m, x: (x.max(-1)[1], (x > 0).min(-1)[1]),
        "both of a minimum": lambda m, x: x.min(1, keepdim=True),
        "both of a maximum": lambda m, x: tuple(x.max(-1))[::-1],
    }
    kept: ClassVar = {
        "both of integers": lambda m, x: (x * 100).to(torch.int32).max(-1),
        "argmax": lambda m, x: x.argmax(-1),
        "topk": lambda m, x: x.topk(3)[1],
        "all": lambda m, x: x.max(),
    }


@pytest.mark.parametrize("name", ["max", "min", "max kept"])
def test_the_value_is_delegated_where_its_index_is_read_too(name):
    """Stock raises; the scores of a detector's classes are behind such a maximum."""
    net = Lambda(lambda m, x: PAIRS[name](m.linear(x)))
    with pytest.raises(Exception, match="ConvertMinMaxPass"):
        quantize(net, (X,), tosa(PROFILES[0]), quantizer_class=TOSAQuantizer)
    graph_module = quantize(net, (X,), tosa(PROFILES[0]))
    manager, partitioner = lower_safely(graph_module, (X,), tosa(PROFILES[0]))
    assert len(delegates(manager)) == 1
    assert f"aten::{name[:3]}" not in [each.op for each in partitioner.report.fallbacks]
    assert codes_apart(manager, graph_module, (X,)) == 0
    value, index = graph_module(X)
    assert off_by(value, net(X)[0]) < 0.02
    assert float((index != net(X)[1]).float().mean()) < 0.1


def off_by(value, expected):
    return float((value - expected).abs().max() / expected.abs().max())


def test_a_value_that_is_read_alone_stays_a_maximum():
    model = graph_of(lambda m, x: x.max(-1)[0], X)
    name_extreme_indices(model)
    assert len(model.graph.find_nodes(op="call_function", target=torch.ops.aten.max.dim)) == 1
    assert torch.equal(model(X), X.max(-1)[0])


def test_results_that_are_read_twice_or_not_at_all_are_told_apart_by_what_they_are():
    model = graph_of(lambda m, x: x.max(-1)[1], X)
    (node,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.max.dim)
    (read,) = (user for user in node.users if user.args[1] == 1)
    with model.graph.inserting_before(read):
        dead, again = (model.graph.call_function(read.target, (node, index)) for index in (0, 1))
    again.meta = dict(read.meta)
    with model.graph.inserting_after(read):
        total = model.graph.call_function(torch.ops.aten.add.Tensor, (read, again))
    total.meta = dict(read.meta)
    read.replace_all_uses_with(total, lambda user: user is not total)
    assert not dead.users
    name_extreme_indices(model)
    model.graph.lint()
    assert torch.equal(model(X), 2 * X.max(-1)[1])
