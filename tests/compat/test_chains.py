"""What ours takes alone it takes with a partitioner after it, which keeps what it wants and gets what is refused."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from lowering import EDGE, PROFILES, delegates, executed, lower_program, output_steps, quantize, targets, tosa
from small import Built, But, Lambda

from safe_arm import SafeArmPartitioner, seams
from safe_arm._compat import chains
from safe_arm._compat.upstream import TOSAPartitioner


def gates(m, x):
    """Activations that ExecuTorch decomposes unless somebody wants them whole, and a linear that XNNPACK wants."""
    x = F.hardswish(m.conv_b(F.silu(m.conv(x))))
    return m.linear(x.mean((2, 3)))


torch.manual_seed(0)
LAYERS = {"conv": nn.Conv2d(4, 8, 3), "conv_b": nn.Conv2d(8, 8, 3), "linear": nn.Linear(8, 4)}
NET, INPUTS = Built(gates, **LAYERS).eval(), (torch.randn(1, 4, 12, 12, generator=torch.Generator().manual_seed(0)),)


def lowered(profile, *partitioners, net=NET, quantised=True):
    graph_module = quantize(net, INPUTS, tosa(profile)) if quantised else net
    exported = torch.export.export(graph_module, INPUTS)
    return lower_program(exported, *partitioners), graph_module


def held(manager, backend):
    children = manager.exported_program().graph_module.named_children()
    modules = [m for name, m in children if name.startswith("lowered_module") and m.backend_id == backend]
    return [target for m in modules for target in targets(m.original_module.graph_module)]


def codes_apart(manager, graph_module):
    ((output,),) = executed(manager, INPUTS)
    return round(((output - graph_module(*INPUTS)).abs().max() / output_steps(graph_module)[0]).item())


def test_stock_loses_them_to_the_chain():
    seams.install()  # stock stays stock beside us
    net = Lambda(lambda m, x: F.hardswish(m.conv_b(F.silu(m.conv(x))))).eval()
    alone, _ = lowered(PROFILES[0], TOSAPartitioner(tosa(PROFILES[0])), net=net)
    chain, _ = lowered(PROFILES[0], TOSAPartitioner(tosa(PROFILES[0])), XnnpackPartitioner(), net=net)
    assert {"silu", "hardswish"} <= set(held(alone, "TOSABackend"))
    assert "silu" not in held(chain, "TOSABackend")  # XNNPACK wants a hardswish whole too


def test_stock_dies_of_a_linear_in_a_chain():
    with pytest.raises(ValueError, match="Failed processing buffer placeholder: aten_permute_copy_default_fused_const"):
        lowered(PROFILES[0], TOSAPartitioner(tosa(PROFILES[0])), XnnpackPartitioner())


def test_ours_keeps_them_to_the_byte(profile):
    alone, chain = SafeArmPartitioner(tosa(profile)), SafeArmPartitioner(tosa(profile))
    alone_lowered, _ = lowered(profile, alone)
    chained, _ = lowered(profile, chain, XnnpackPartitioner())
    assert delegates(chained)[: len(chain.report.delegates)] == delegates(alone_lowered)
    assert [(v.name, v.verdict) for v in chain.report.compute] == [(v.name, v.verdict) for v in alone.report.compute]


def test_what_ours_refuses_the_next_one_gets_as_it_likes_it(profile):
    """Decomposed where only ours wanted it whole, whole where the next one wants it so too, in the graph's codes."""
    manager, graph_module = lowered(profile, SafeArmPartitioner(tosa(profile), [But("")]), XnnpackPartitioner())
    left = targets(manager.exported_program().graph_module)
    assert [target for target in left if "call_delegate" not in target] == ["sum"]  # it has none of its own
    assert {"convolution", "sigmoid", "mul", "addmm"} <= set(held(manager, "XnnpackBackend"))
    assert codes_apart(manager, graph_module) == 0


def test_a_chain_of_others_is_not_touched():
    asked = [XnnpackPartitioner(), TOSAPartitioner(tosa(PROFILES[0]))]
    assert chains.chained(asked) is asked


def test_an_earlier_partitioner_is_asked_as_if_ours_were_not_there():
    def exported(last):
        profile = "TOSA-1.0+FP"
        return delegates(lowered(profile, XnnpackPartitioner(), last(tosa(profile), [But("")]), quantised=False)[0])

    assert exported(SafeArmPartitioner) == exported(TOSAPartitioner)


def test_two_methods_are_chained_each_by_itself():
    spec = tosa(PROFILES[0])
    graph_module = quantize(NET, INPUTS, spec)
    programs = {name: torch.export.export(graph_module, INPUTS) for name in ("one", "two")}
    ours = {name: SafeArmPartitioner(spec) for name in programs}
    chain = {"one": [ours["one"], XnnpackPartitioner()], "two": [ours["two"]]}
    to_edge_transform_and_lower(programs, partitioner=chain, compile_config=EDGE)
    shares = [ours[name].reports[name].share_delegated for name in programs]
    assert shares == [1.0, 1.0]
    assert not chains.kept_for(ours["two"])
