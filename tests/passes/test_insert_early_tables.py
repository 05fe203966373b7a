"""Operators of codes lower behind a table: they are not taken for operators of floats."""

import re
from functools import partial

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.specification import TosaLoweringContext, TosaSpecification
from failure import said
from folding import changed_once
from lowering import (
    WIDE,
    by_stock,
    check_stocks_bytes,
    codes_apart,
    edge_program,
    lower_exactly,
    lower_safely,
    min_max,
    quantize,
    targets,
    tosa,
)
from small import Built, Lambda, image, marked, qdq

from safe_arm._compat.upstream import FoldAndAnnotateQParamsPass
from safe_arm.passes.insert_early_tables import InsertEarlyTablesPass
from safe_arm.passes.manager import CORRECTIONS

INT, MIXED, INT16 = "TOSA-1.0+INT", "TOSA-1.0+INT+FP", "TOSA-1.0+INT+int16"
TOKENS = (
    torch.randn(2, 10, 8, generator=torch.Generator().manual_seed(0)),
    torch.arange(10).unsqueeze(0) < torch.tensor([[4], [8]]),
)
ROW = (torch.randn(2, 8, generator=torch.Generator().manual_seed(0)),)
ROWS = (ROW[0].reshape(1, 4, 4).repeat(1, 1, 2),)


def attention_pool(choose):
    """A choice among the scores of an attention pool, which a linear gives behind a tanh."""

    def rule(m, x, keep):
        scores = m.after(torch.tanh(m.before(x))).squeeze(-1)
        return choose(keep, scores)

    return partial(Built, rule, before=nn.Linear(8, 8), after=nn.Linear(8, 1))


def head(function, *before):
    """A function, and a linear behind it."""
    layers = {"before": nn.Sequential(*before), "linear": nn.Linear(8, 3)}
    return Built(lambda m, x: m.linear(function(m.before(x))), **layers)


CHOICES = {
    "a masked softmax": attention_pool(lambda keep, scores: torch.where(keep, scores, -torch.inf).softmax(-1)),
    "a choice": attention_pool(lambda keep, scores: torch.where(keep, scores, torch.zeros(1, 10))),
}
HEADS = {
    "tanh": (partial(head, torch.tanh), ROW),
    "exp": (partial(head, torch.exp), ROW),
    "sigmoid, rows": (partial(head, torch.sigmoid), ROWS),
    "two linears": (partial(head, torch.tanh, nn.Linear(8, 8)), ROW),
    "tanh, relu": (partial(head, lambda x: torch.tanh(x).relu()), ROW),
}
EACH_HEAD = pytest.mark.parametrize(("build", "inputs"), HEADS.values(), ids=HEADS)
PLANES = (torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0)),)
EXTREMES = {
    "largest": lambda m, x: x.sigmoid().amax(-1),
    "least": lambda m, x: x.tanh().amin(-1, keepdim=True),
    "of planes": lambda m, x: x.sigmoid().amax((2, 3)),
    "of a linear, viewed": lambda m, x: x.reshape(4, 64).tanh().amax(-1),
    "pooled": lambda m, x: F.max_pool2d(x.sigmoid(), 2, 2),
    "pooled by size": lambda m, x: F.adaptive_max_pool2d(x.tanh(), 2),
}
EACH_EXTREME = pytest.mark.parametrize("rule", EXTREMES.values(), ids=EXTREMES)
POOLS = {
    "of exponentials": lambda m, x: F.avg_pool2d(x.exp(), 3).abs().log(),
    "general mean": lambda m, x: F.adaptive_avg_pool2d(x.clamp(min=1e-6).pow(3.0), 1).pow(1 / 3),
}
#: By name, a profile, a config, and the codes that a pool may be off: TOSA rounds halves up, and lines are no curves.
WIDTHS = {"8 bits": (INT, min_max(), 1), "16 bits": (INT16, min_max(WIDE), 16)}
EACH_WIDTH = pytest.mark.parametrize(("profile", "config", "most"), WIDTHS.values(), ids=WIDTHS)


def dies_and_is_exact(build, inputs, profile, stock, **options):
    """Check what stock raises for a net, and that ours delegates it all to the code."""
    torch.manual_seed(0)
    graph_module = quantize(build(), inputs, tosa(profile), **options)
    with pytest.raises(Exception) as caught:
        by_stock(graph_module, inputs, tosa(profile))
    assert re.search(stock, said(caught.value))
    report = lower_exactly(graph_module, tosa(profile), inputs, verify=False).report
    assert ("early-tables", "T72") in [(each.correction, each.issue) for each in report.applied]


@pytest.mark.parametrize("build", CHOICES.values(), ids=CHOICES)
def test_a_choice_whose_other_operand_stock_casts_to_floats(build):
    message = r"got torch.int8 and torch.float32|doesn't support tensor.*FP32"
    dies_and_is_exact(build, TOKENS, INT, message, config=min_max())


@EACH_HEAD
def test_a_linear_whose_codes_stock_compares_with_zero(build, inputs):
    dies_and_is_exact(build, inputs, MIXED, "Unsupported dtype torch.int8 for GREATER_EQUAL")


@EACH_EXTREME
def test_an_extreme_whose_codes_stock_compares_with_zero(rule):
    dies_and_is_exact(partial(Lambda, rule), PLANES, MIXED, "Unsupported dtype torch.int8 for GREATER_EQUAL")


@EACH_EXTREME
def test_an_extreme_gets_stock_s_bytes_in_int_alone(rule):
    check_stocks_bytes(quantize(Lambda(rule), PLANES, tosa(INT)), PLANES, tosa(INT))


def pooled(rule, profile, config):
    return quantize(Lambda(rule), image(), tosa(profile), quantizer_class=TOSAQuantizer, config=config)


@EACH_WIDTH
def test_a_pool_that_stock_makes_one_of_floats(profile, config, most):
    with pytest.raises(Exception, match="ProgramGraphPassAdapter") as caught:
        by_stock(pooled(POOLS["general mean"], profile, config), image(), tosa(profile))
    assert "Unsupported input dtype torch.float32" in said(caught.value)


@EACH_WIDTH
@pytest.mark.parametrize("name", POOLS)
def test_a_pool_is_one_delegate_with_the_codes_of_the_graph(name, profile, config, most):
    graph_module = pooled(POOLS[name], profile, config)
    manager, partitioner = lower_safely(graph_module, image(), tosa(profile))
    report = partitioner.report
    assert len(report.delegates) == 1
    assert report.fallbacks == ()
    assert {each.correction for each in report.applied} >= {"early-tables"}
    assert codes_apart(manager, graph_module, image(), image(1)) <= most


@EACH_HEAD
def test_a_linear_gets_stock_s_bytes_in_int_alone(build, inputs):
    torch.manual_seed(0)
    check_stocks_bytes(quantize(build(), inputs, tosa(INT)), inputs, tosa(INT))


@EACH_WIDTH
def test_a_pool_of_what_is_no_table_gets_stock_s_bytes(profile, config, most):
    graph_module = pooled(lambda m, x: F.avg_pool2d(x + 1, 2).tanh(), profile, config)
    chosen = tuple(c for c in CORRECTIONS if c.name == "early-tables")
    check_stocks_bytes(graph_module, image(), tosa(profile), corrections=chosen)


def codes_of(function, x):
    """What a function makes of codes, as codes."""
    return qdq(function(qdq(x, 0.1, 3)), 0.1, 3)


#: By name, a rule of codes, and whether stock takes it for one of floats.
RULES = {
    "pool of a table": (lambda m, x: qdq(F.avg_pool2d(codes_of(torch.tanh, x), 2), 0.1, 3), True),
    "pool of codes": (lambda m, x: qdq(F.avg_pool2d(qdq(x, 0.1, 3), 2), 0.1, 3), False),
    "pool of floats": (lambda m, x: F.avg_pool2d(x.tanh(), 2), False),
    "difference from a table": (lambda m, x: qdq(codes_of(torch.tanh, x) - qdq(x, 0.1, 3), 0.1, 3), True),
    "difference of tables": (lambda m, x: qdq(codes_of(torch.tanh, x) - codes_of(torch.exp, x), 0.1, 3), False),
    "cast of a table, viewed": (lambda m, x: codes_of(torch.tanh, x).reshape(-1).to(torch.int32), True),
    "cast of a table": (lambda m, x: codes_of(torch.tanh, x).to(torch.int32), False),
    "cast of a largest": (lambda m, x: qdq(codes_of(torch.tanh, x).amax(-1), 0.1, 3).to(torch.int32), True),
    "cast of a largest of codes": (lambda m, x: qdq(qdq(x, 0.1, 3).amax(-1), 0.1, 3).to(torch.int32), False),
    "cast of floats, viewed": (lambda m, x: x.tanh().reshape(-1).to(torch.int32), False),
}


@pytest.mark.parametrize(("rule", "inserts"), RULES.values(), ids=RULES)
def test_tables_are_inserted_where_codes_are_taken_for_floats_and_twice_equals_once(rule, inserts):
    program = edge_program(marked(Lambda(rule), image()), image())
    graph_module = FoldAndAnnotateQParamsPass(program)(program.graph_module).graph_module
    insert = partial(InsertEarlyTablesPass, program)
    with TosaLoweringContext(TosaSpecification.create_from_string(MIXED)):
        if inserts:
            assert "TABLE" in changed_once(insert, graph_module)
            return
        result = insert()(graph_module)
    assert not result.modified
    assert "TABLE" not in targets(result.graph_module)
