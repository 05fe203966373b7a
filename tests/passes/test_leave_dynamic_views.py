"""A linear layer with a dynamic batch is delegated: no pass moves or merges its views."""

import re

import pytest
import torch
from dynamic import NETS, lowered, quantised
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import check_stocks_bytes, lower_safely, quantize, tosa
from small import Lambda

from safe_arm import SafeArmPartitioner
from safe_arm._compat.tested_releases import executorch_version, parse
from safe_arm.passes.leave_dynamic_views import on_static_views

pytestmark = pytest.mark.skipif(parse(executorch_version()) < (1, 5), reason="1.4 delegates nothing of a dynamic shape")
#: Without the extension TOSA has no reshape to a dynamic size.
SHAPES = ["TOSA-1.1+INT+shape", "TOSA-1.1+FP+shape"]
LINEAR = ["linear-batch", "linear-length"]
ROWS = (torch.randn(4, 8, generator=torch.Generator().manual_seed(0)),)


def changed(partitioner):
    return {each.correction for each in partitioner.report.applied}


@pytest.mark.parametrize("name", LINEAR)
def test_stock_raises(name):
    program, _, _ = quantised(name, SHAPES[0])
    with pytest.raises(Exception, match="An error occurred when running") as raised:
        lowered(program, TOSAPartitioner(tosa(SHAPES[0])))
    assert re.search("used before it has been defined|no attribute 'node'", str(raised.value.__cause__))


@pytest.mark.parametrize("profile", SHAPES)
@pytest.mark.parametrize("name", LINEAR)
def test_ours_is_one_exact_delegate_at_every_size(name, profile):
    program, _, _ = quantised(name, profile)
    partitioner = SafeArmPartitioner(tosa(profile), verify=True)
    lowered(program, partitioner)
    assert partitioner.report.fallbacks == ()
    (proof,) = partitioner.report.verifications
    assert proof.verified
    assert proof.worst == 0
    _, shape, _, (dim, (smallest, _, largest)) = NETS[name]
    for size in (smallest, largest):
        assert "x".join(map(str, [*shape[:dim], size, *shape[dim + 1 :]])) in proof.note
    assert "dynamic-views" in changed(partitioner)


def test_without_the_extension_the_advice_is_a_profile_that_has_it():
    program, _, _ = quantised("linear-batch", "TOSA-1.0+INT")
    partitioner = SafeArmPartitioner(tosa("TOSA-1.0+INT"))
    with pytest.warns(Warning, match="demoted from"):
        lowered(program, partitioner)
    assert "use a profile with that extension" in str(partitioner.report)


def test_a_fixed_batch_stays_stock_s():
    graph_module = quantize(Lambda(lambda m, x: m.linear(x).relu()), ROWS, tosa(SHAPES[0]))
    check_stocks_bytes(graph_module, ROWS, tosa(SHAPES[0]))
    assert "dynamic-views" not in changed(lower_safely(graph_module, ROWS, tosa(SHAPES[0]))[1])


def test_so_does_a_dynamic_net_without_views():
    program, _, _ = quantised("conv-batch", SHAPES[0])
    partitioner = SafeArmPartitioner(tosa(SHAPES[0]), verify=False)
    lowered(program, partitioner)
    assert "dynamic-views" not in changed(partitioner)


class Willing:
    """A pass that would run on any graph."""

    def should_run_pass(self, graph_module):
        return True


@pytest.mark.parametrize(("is_dynamic", "runs"), [(True, False), (False, True)])
def test_a_copy_of_the_pass_asks_for_views_of_dynamic_sizes_and_twice_equals_once(is_dynamic, runs):
    graph = torch.fx.Graph()
    source, size = graph.placeholder("x"), graph.placeholder("size")
    graph.output(graph.call_function(torch.ops.aten.view_copy.default, (source, [size if is_dynamic else 2, 16])))
    graph_module = torch.fx.GraphModule({}, graph)
    stock = Willing()
    ours = on_static_views(stock)
    assert ours.should_run_pass(graph_module) is runs
    assert on_static_views(ours).should_run_pass(graph_module) is runs
    assert stock.should_run_pass(graph_module)
