"""An argmax of quantised values is delegated and gives the label that the quantised graph gives."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import PROFILES, codes_apart, delegates, lower, lower_exactly, lower_safely, quantize, tosa
from proving import quantized
from small import DQ, Lambda, image

from safe_arm import SafeArmPartitioner
from safe_arm.partitioner.argmax_of_codes import with_argmax_of_codes

pytestmark = [
    pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DoubtfulInputWarning"),
    pytest.mark.skipif(not hasattr(TOSAPartitioner, "transform_for_pre_decomposition"), reason="1.4 has no such hook"),
]
X, ROWS = image(), (torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(3)),)
TABLE = torch.randn(8, 4, generator=torch.Generator().manual_seed(4))
INT8 = frozenset([torch.int8])


def nearest(m, x):
    """The places of the nearest of eight rows, as of the codebook of a VQ-VAE."""
    return ((x.unsqueeze(-2) - m.linear.weight) ** 2).sum(-1).argmin(-1)


HEADS = {
    "argmax": (lambda m, x: m.conv(x).argmax(1), X),
    "max-index": (lambda m, x: m.conv(x).max(1)[1], X),
    "last-dim": (lambda m, x: m.linear(x).argmax(-1), ROWS),
    "keepdim": (lambda m, x: m.linear(x).max(-1, keepdim=True)[1], ROWS),
    "first-dim": (lambda m, x: m.linear(x).argmax(0), ROWS),
    "beside-values": (lambda m, x: (m.conv(x), m.conv(x).argmax(1)), X),
    "argmin": (lambda m, x: m.linear(x).argmin(-1), ROWS),
    "masked-argmin": (lambda m, x: m.linear(x).masked_fill(x > 1, 1e9).argmin(-1), ROWS),
    "min-index-kept": (lambda m, x: m.linear(x).min(1, keepdim=True)[1], ROWS),
    "nearest": (lambda m, x: (lambda code: (code, TABLE[code]))(nearest(m, x)), ROWS),
    "relu": (lambda m, x: torch.relu(m.linear(x) - 1).argmax(-1), ROWS),
}
#: Rows of a table whose places no one else reads.
CODEBOOKS = {
    "embedding": lambda m, x: F.embedding(nearest(m, x), m.linear.weight),
    "embedding of a row more": lambda m, x: F.embedding(nearest(m, x).unsqueeze(0), m.linear.weight),
    "flattened": lambda m, x: F.embedding(nearest(m, x).reshape(-1), m.linear.weight),
    "kept": lambda m, x: F.embedding(m.linear(x).argmax(-1, keepdim=True), m.linear.weight),
    "index": lambda m, x: m.linear.weight[nearest(m, x)] + 1,
    "one-hot code": lambda m, x: F.one_hot(nearest(m, x), 8).float() @ TABLE,
    "scattered ones": lambda m, x: torch.zeros_like(x).scatter_(-1, m.linear(x).argmax(-1, keepdim=True), 1.0) @ TABLE,
    "compared": lambda m, x: (x[..., 0].argmax(1, True).int() == torch.arange(8, dtype=torch.int32)).float() @ TABLE,
    "selected": lambda m, x: m.linear.weight.index_select(0, nearest(m, x[0])),
}


def outside(report):
    return {verdict.op for verdict in report.fallbacks}


def test_stock_leaves_it_on_the_cpu(profile):
    forward, x = HEADS["argmax"]
    manager = lower(quantize(Lambda(forward), x, tosa(profile)), x, TOSAPartitioner(tosa(profile)))
    called = [str(node.target) for node in manager.exported_program().graph.nodes]
    assert any("argmax" in target for target in called)


@pytest.mark.parametrize("head", HEADS)
def test_ours_delegates_it(head, profile):
    forward, x = HEADS[head]
    graph_module = quantize(Lambda(forward), x, tosa(profile))
    manager, partitioner = lower_safely(graph_module, x, tosa(profile), non_fuseable="propagate")
    assert outside(partitioner.report) == {"dim_order_ops::_to_dim_order_copy"}  # back to int64
    assert len(delegates(manager)) == 1
    assert all(each.verified and each.exact for each in partitioner.report.verifications)
    # Saturated on both sides, and ties: half of all rows are alike, or all of them.
    tied = (x[0] * 100, torch.zeros_like(x[0]), x[0].round())
    assert codes_apart(manager, graph_module, x, *((each,) for each in tied)) == 0


@pytest.mark.parametrize("rule", CODEBOOKS.values(), ids=CODEBOOKS)
def test_the_rows_of_a_table_at_such_places_leave_nothing_on_the_cpu(rule):
    graph_module = quantize(Lambda(rule), ROWS, tosa(PROFILES[0]))
    lower_exactly(graph_module, tosa(PROFILES[0]), ROWS, (ROWS[0] * 100,), (torch.zeros_like(ROWS[0]),))


def test_a_label_that_is_cast_to_int32_leaves_nothing_on_the_cpu(profile):
    net = Lambda(lambda m, x: m.linear(x).argmax(-1).to(torch.int32))
    graph_module = quantize(net, ROWS, tosa(profile))
    manager, partitioner = lower_safely(graph_module, ROWS, tosa(profile), non_fuseable="propagate")
    assert outside(partitioner.report) == set()
    assert codes_apart(manager, graph_module, ROWS) == 0


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_ours_delegates_it_in_int16(name):
    spec = "TOSA-1.0+INT+int16"
    graph_module = quantized(Lambda(HEADS[name][0]), X, spec, wide=True)
    manager, partitioner = lower_safely(graph_module, X, tosa(spec), non_fuseable="propagate")
    assert f"aten::{name}" not in outside(partitioner.report)
    assert codes_apart(manager, graph_module, X, (X[0] * 100,), (torch.zeros_like(X[0]),)) == 0


def argmax(scale=0.1, dtype=torch.int8, dim=1, name="argmax"):
    """The argmax of a dequantised input, or its argmin."""
    limits = torch.iinfo(dtype)
    return Lambda(lambda m, codes: getattr(DQ(codes, scale, 3, limits.min, limits.max, dtype), name)(dim))


def program(net, dtype=torch.int8):
    return torch.export.export(net, (torch.zeros(2, 5, dtype=dtype),))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_it_reads_codes_twice_is_once_and_the_given_program_stays_as_it_is(name):
    given = program(argmax(name=name))
    before = str(given.graph)
    made = with_argmax_of_codes(given, INT8)
    assert str(given.graph) == before
    assert with_argmax_of_codes(made, INT8) is made
    assert (DQ in [node.target for node in made.graph.nodes]) == (name == "argmin"), "whose negative is quantised"
    for row in ([-128, 127, 127, -128, 127], [5, 5, 5, 5, 5], [3, -7, 100, 0, -128], [9, -127, -128, 126, 127]):
        codes = torch.tensor([row, row[::-1]], dtype=torch.int8)
        assert torch.equal(made.module()(codes), given.module()(codes)), "the first place of equal codes"
        assert made.module()(codes).dtype == torch.int64


@pytest.mark.parametrize(
    ("net", "dtype"),
    [
        (argmax(dim=None), torch.int8),
        (argmax(scale=1e-40), torch.int8),
        (argmax(dtype=torch.int16), torch.int16),
        (argmax(dtype=torch.uint8), torch.uint8),
        (argmax(dim=None, name="argmin"), torch.int8),
    ],
    ids=["whole", "tiny-scale", "int16-without-extension", "uint8", "least of all"],
)
def test_the_near_miss_is_untouched(net, dtype):
    given = program(net, dtype)
    assert with_argmax_of_codes(given, INT8) is given


def test_an_argmax_of_real_floats_or_integers_is_untouched():
    for x in (torch.randn(2, 5), torch.arange(10).view(2, 5)):
        given = torch.export.export(Lambda(lambda m, x: x.argmax(1)), (x,))
        assert with_argmax_of_codes(given, INT8) is given


def test_vela_takes_it_for_a_u85_and_not_for_a_u55_and_floats_have_no_codes():
    assert SafeArmPartitioner(EthosUCompileSpec("ethos-u85-256"))._integers >= INT8
    assert SafeArmPartitioner(EthosUCompileSpec("ethos-u55-128"))._integers == frozenset()
    assert SafeArmPartitioner(tosa("TOSA-1.0+FP"))._integers == frozenset()


def test_the_least_of_codes_of_16_bits_whose_negative_has_none_is_untouched():
    given = program(argmax(dtype=torch.int16, name="argmin"), torch.int16)
    assert with_argmax_of_codes(given, frozenset((torch.int16,))) is given
