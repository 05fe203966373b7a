"""An average pool of what a table gives is delegated."""

from functools import partial

import pytest
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
    lower_safely,
    min_max,
    quantize,
    tosa,
)
from small import Lambda, image, marked, qdq

from safe_arm._compat.upstream import FoldAndAnnotateQParamsPass
from safe_arm.passes.insert_pooled_tables import InsertPooledTablesPass
from safe_arm.passes.manager import CORRECTIONS

#: By name, a profile, a config, and the codes that a pool may be off: TOSA rounds halves up, and lines are no curves.
WIDTHS = {"8 bits": ("TOSA-1.0+INT", min_max(), 1), "16 bits": ("TOSA-1.0+INT+int16", min_max(WIDE), 16)}
POOLS = {
    "of exponentials": lambda m, x: F.avg_pool2d(x.exp(), 3).abs().log(),
    "general mean": lambda m, x: F.adaptive_avg_pool2d(x.clamp(min=1e-6).pow(3.0), 1).pow(1 / 3),
}
EACH = pytest.mark.parametrize(("profile", "config", "most"), WIDTHS.values(), ids=WIDTHS)


def quantised(rule, profile, config):
    return quantize(Lambda(rule), image(), tosa(profile), quantizer_class=TOSAQuantizer, config=config)


@EACH
def test_stock_raises(profile, config, most):
    with pytest.raises(Exception, match="ProgramGraphPassAdapter") as caught:
        by_stock(quantised(POOLS["general mean"], profile, config), image(), tosa(profile))
    assert "Unsupported input dtype torch.float32" in said(caught.value)


@EACH
@pytest.mark.parametrize("name", POOLS)
def test_ours_is_one_delegate_with_the_codes_of_the_graph(name, profile, config, most):
    graph_module = quantised(POOLS[name], profile, config)
    manager, partitioner = lower_safely(graph_module, image(), tosa(profile))
    report = partitioner.report
    assert len(report.delegates) == 1
    assert report.fallbacks == ()
    assert {each.correction for each in report.applied} >= {"pooled-tables"}
    assert codes_apart(manager, graph_module, image(), image(1)) <= most


@EACH
def test_a_pool_of_what_is_no_table_gets_stock_s_bytes(profile, config, most):
    graph_module = quantised(lambda m, x: F.avg_pool2d(x + 1, 2).tanh(), profile, config)
    chosen = tuple(c for c in CORRECTIONS if c.name == "pooled-tables")
    check_stocks_bytes(graph_module, image(), tosa(profile), corrections=chosen)


def test_twice_equals_once():
    net = Lambda(lambda m, x: qdq(F.avg_pool2d(qdq(qdq(x, 0.1, 3).tanh(), 0.1, 3), 2), 0.1, 3))
    program = edge_program(marked(net, image()), image())
    graph_module = FoldAndAnnotateQParamsPass(program)(program.graph_module).graph_module
    with TosaLoweringContext(TosaSpecification.create_from_string("TOSA-1.0+INT")):
        assert "TABLE" in changed_once(partial(InsertPooledTablesPass, program), graph_module)
