"""Operators that know one quantisation domain get their inputs in that of their output."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from folding import changed_once, is_untouched
from lowering import PROFILES, check_stocks_bytes, edge_program, lower_exactly, quantize, stock_codes_apart, tosa
from small import DQ, Lambda, Q, image, marked, qdq
from stock import stock_lower

from safe_arm.core.island import QParams
from safe_arm.passes.requantise_inputs import RequantiseInputsPass, mirrored
from safe_arm.verification.reference_model import run_lowered

#: No quotient of two of these steps has ties.
FROM, OTHER, TO = (0.01, 3), (0.0047, 30), (0.0213, -20)
INT8, CODES = (-128, 127, torch.int8), torch.zeros(1, 4, 8, 8, dtype=torch.int8)
TWO = (*image(), *image(seed=1))
BEYOND = (*image(2, 2.0), *image(3, 2.0))

#: Stock is 23 to 151 codes off on 1.5.1 in each of these.
OPERATORS = {
    "neg": lambda x, y: -x,
    "relu": lambda x, y: F.relu(x),
    "hardtanh": lambda x, y: F.hardtanh(x, -0.4, 0.6),
    "clamp": lambda x, y: torch.clamp(x, -0.3, 0.5),
    "view": lambda x, y: x.view(1, 4, 64),
    "permute": lambda x, y: x.permute(0, 2, 3, 1),
    "slice": lambda x, y: x[:, 1:3],
    "select": lambda x, y: x[:, 1],
    "expand": lambda x, y: x.expand(2, 4, 8, 8),
    "repeat": lambda x, y: x.repeat(1, 2, 1, 1),
    "flip": lambda x, y: x.flip(2),
    "split": lambda x, y: x.split(2, 1)[1],
    "pixel_shuffle": lambda x, y: F.pixel_shuffle(x, 2),
    "pad": lambda x, y: F.pad(x, (1, 1, 1, 1), value=0.5),
    "reflect": lambda x, y: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "max_pool": lambda x, y: F.max_pool2d(x, 3, 1, 1),
    "amax": lambda x, y: x.amax(1),
    "nearest": lambda x, y: F.interpolate(x, scale_factor=2, mode="nearest"),
    "cat": lambda x, y: torch.cat((x, y), 1),
    "stack": lambda x, y: torch.stack((x, y), 1),
    "where": lambda x, y: torch.where(torch.arange(8) > 3, x, y),
}


def computed(value, scale, zero_point):
    """Return a function that dequantises a sum: for each reader anew, as PT2E's conversion does."""
    args, value = (scale, zero_point, *INT8), qdq(value, 0.005, 0)
    codes = Q(value + value, *args)
    return lambda: DQ(codes, *args)


def worst(manager, graph_module, *samples):
    found = dict.fromkeys(OPERATORS, 0)
    for inputs in samples:
        actual = run_lowered(manager.exported_program(), inputs)
        for name, a, e in zip(OPERATORS, actual, graph_module(*inputs), strict=True):
            found[name] = max(found[name], round(float((a - e).abs().max()) / TO[0]))
    return found


def test_stock_reads_them_in_one_domain_and_ours_requantises_once_and_is_exact(profile):
    """Every operator in one graph, lowered by both."""
    functions = list(OPERATORS.values())

    def forward(m, x, y):
        a, b = computed(x, *FROM), computed(y, *OTHER)
        return tuple(qdq(function(a(), b()), *TO) for function in functions)

    graph_module = marked(Lambda(forward), TWO)
    found = worst(stock_lower(graph_module, TWO, TOSAPartitioner(tosa(profile))), graph_module, TWO, BEYOND)
    assert {name for name, codes in found.items() if codes < 20} == set()
    lower_exactly(graph_module, tosa(profile), TWO, BEYOND, verify=False)


@pytest.mark.parametrize("narrow", [False, True], ids=["the whole range", "127"])
def test_neg_beside_a_cat(profile, narrow):
    """The input of ``neg`` is in the cat's domain, its output in one of its own (S20)."""

    def forward(m, x, y):
        h = m.conv(x)
        return -h, torch.cat([h, 4 * y], 1)

    net = Lambda(forward)
    stock_graph = quantize(net, TWO, tosa(profile), narrow=narrow, quantizer_class=TOSAQuantizer)
    assert stock_codes_apart(stock_graph, TWO, tosa(profile)) > 50
    partitioner = lower_exactly(stock_graph, tosa(profile), TWO, BEYOND, verify=False)
    assert "one-domain" in {each.correction for each in partitioner.report.applied}


def test_a_narrower_range_is_kept_by_what_moves_codes():
    """The RESCALE that is put in saturates to the whole type; the quantiser does not."""

    def forward(m, x, y):
        return qdq(computed(x, *FROM)().view(1, 4, 64), 0.0113, 5, -100, 100)

    graph_module = marked(Lambda(forward), TWO)
    lower_exactly(graph_module, tosa(PROFILES[0]), TWO, BEYOND, verify=False)


def test_codes_of_16_bits():
    a, b = (1.3e-4, 0, -32767, 32767, torch.int16), (2.1e-4, 0, -32767, 32767, torch.int16)

    def forward(m, x, y):
        h = DQ(Q(x, *a), *a)
        h = DQ(Q(h + h, *a), *a)
        return DQ(Q(-h, *b), *b), DQ(Q(h.view(1, 4, 64), *b), *b)

    profile = "TOSA-1.0+INT+int16"
    graph_module = marked(Lambda(forward), TWO)
    lower_exactly(graph_module, tosa(profile), TWO, BEYOND, verify=False)


def test_one_domain_gets_stock_s_bytes(profile):
    def forward(m, x, y):
        a, b = computed(x, *TO), computed(y, *TO)
        return tuple(qdq(function(a(), b()), *TO) for function in (*OPERATORS.values(), torch.add, torch.mul))

    graph_module = marked(Lambda(forward), TWO)
    check_stocks_bytes(graph_module, TWO, tosa(profile))


def edge(function):
    net = Lambda(lambda m, x, y: qdq(function(qdq(x, *FROM), y), *TO))
    return edge_program(marked(net, TWO), TWO)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x, y: x.tanh(), id="a table has two domains"),
        pytest.param(lambda x, y: x + x, id="a sum is rescaled"),
        pytest.param(lambda x, y: qdq(x.view(1, 4, 64), *FROM).tanh(), id="a view in one domain"),
        pytest.param(lambda x, y: DQ(CODES, *FROM, *INT8).permute(0, 2, 3, 1), id="constants are left to the folder"),
    ],
)
def test_near_misses_are_left_alone(function):
    program = edge(function)
    assert is_untouched(lambda: RequantiseInputsPass(program), program.graph_module)


def test_twice_equals_once():
    program = edge(lambda x, y: torch.cat((x, qdq(y, *OTHER), x), 1))
    once = changed_once(lambda: RequantiseInputsPass(program), program.graph_module)
    assert once.count("quantize_per_tensor") == 5


def test_a_chain_is_requantised_where_it_begins():
    program = edge(lambda x, y: -x.view(1, 4, 64).permute(0, 2, 1))
    result = RequantiseInputsPass(program)(program.graph_module).graph_module
    quantisers = [QParams.of(n) for n in result.graph.nodes if "quantize_per_tensor" in str(n.target)]
    assert [q.zero_point for q in quantisers] == [FROM[1], FROM[1], -1 - TO[1], -1 - TO[1], TO[1], TO[1]]


@pytest.mark.parametrize(("low", "high"), [(-128, 127), (-127, 127), (-100, 90)])
def test_each_code_has_its_mirror_image(low, high):
    there = QParams(0.1, -20, low, high, torch.int8)
    back = mirrored(there)
    for code in range(low, high + 1):
        value = -(code - there.zero_point)
        assert back.qmin <= value + back.zero_point <= back.qmax
    assert mirrored(back) == there
