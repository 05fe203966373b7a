"""Constants are folded with each argument in its own quantisation domain."""

import pytest
import torch
import torch.nn as nn
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import (
    PROFILES,
    check_stocks_bytes,
    codes_apart,
    delegates,
    edge_program,
    lower,
    lower_exactly,
    quantize,
    tosa,
)
from small import DQ, Lambda, Q, image, mark_quantised
from stock import stock_lower
from tosa_flatbuffer import constants

from safe_arm import SafeArmPartitioner
from safe_arm._compat.upstream import FoldAndAnnotateQParamsPass, get_first_fake_tensor
from safe_arm.passes.fuse_constant_args import FuseConstantArgsPass
from safe_arm.passes.record_element_qparams import ELEMENT_QPARAMS, RecordElementQParamsPass

OUT = (0.02, 5, -128, 127, torch.int8)


class ConstantCat(nn.Module):
    """x plus a cat of two int8 constants, each with qparams of its own."""

    def __init__(self, second=(0.04, -20), join=torch.cat) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for name in ("a", "b"):
            codes = torch.randint(-60, 60, (1, 2, 8, 8), dtype=torch.int8, generator=generator)
            self.register_buffer(name, codes)
        self.second, self.join = second, join

    def forward(self, x):
        a = DQ(self.a, 0.01, 3, -128, 127, torch.int8)
        b = DQ(self.b, *self.second, -128, 127, torch.int8)
        joined = DQ(Q(self.join((a, b), 1), *OUT), *OUT)
        x = DQ(Q(x, *OUT), *OUT)
        return DQ(Q(x + joined, *OUT), *OUT)


def marked(net):
    return mark_quantised(torch.export.export(net, image()).module())


def expected_constant(net):
    a, b = DQ(net.a, 0.01, 3, -128, 127, torch.int8), DQ(net.b, *net.second, -128, 127, torch.int8)
    return Q(torch.cat((a, b), 1), *OUT)


@pytest.mark.parametrize("profile", PROFILES)
def test_stock_reads_the_second_element_in_the_first_one_s_domain(profile):
    graph_module = marked(ConstantCat())
    manager = stock_lower(graph_module, image(), TOSAPartitioner(tosa(profile)))
    assert codes_apart(manager, graph_module, image()) > 4


@pytest.mark.parametrize("profile", PROFILES)
def test_ours_uses_each_element_s_own(profile):
    net = ConstantCat()
    graph_module = marked(net)
    partitioner = lower_exactly(graph_module, tosa(profile), image(), image(1, gain=2.0))
    assert not any(v.issue for v in partitioner.report.fallbacks)


@pytest.mark.parametrize("profile", PROFILES)
def test_one_shared_domain_gives_stock_s_bytes(profile):
    graph_module = marked(ConstantCat(second=(0.01, 3)))
    check_stocks_bytes(graph_module, image(), tosa(profile))


@pytest.mark.parametrize("profile", PROFILES)
def test_a_constant_in_a_quantised_model_is_exact(profile):
    grid = torch.linspace(-0.9, 0.9, 64).view(1, 1, 8, 8)
    net = Lambda(lambda m, x: m.conv(torch.cat((x[:, :2], torch.cat((grid, grid.flip(-1)), 1)), 1)))
    graph_module = quantize(net, image(), tosa(profile))
    lower_exactly(graph_module, tosa(profile), image(), image(1, gain=2.0))


def program_before_folding(net):
    program = edge_program(marked(net), image())
    graph_module = RecordElementQParamsPass()(program.graph_module).graph_module
    folded = FoldAndAnnotateQParamsPass(program)(graph_module).graph_module
    program._graph_module = folded
    return program


def cat_node(graph_module):
    return next(n for n in graph_module.graph.nodes if "cat" in str(n.target))


def test_the_folded_codes_are_the_graph_s():
    net = ConstantCat()
    program = program_before_folding(net)
    node = cat_node(program.graph_module)
    assert set(node.meta[ELEMENT_QPARAMS]) == {0}
    assert torch.equal(evaluated_codes(program, node), expected_constant(net))


def evaluated_codes(program, node):
    data = FuseConstantArgsPass(program)._evaluate(node)
    return next(iter(node.meta["output_qparams"].values())).quantize_value(data)


def test_twice_equals_once():
    program = program_before_folding(ConstantCat())
    first = FuseConstantArgsPass(program)(program.graph_module)
    assert first.modified
    once = [n.name for n in first.graph_module.graph.nodes]
    again = FuseConstantArgsPass(program)(first.graph_module)
    assert not again.modified
    assert [n.name for n in again.graph_module.graph.nodes] == once


@pytest.mark.parametrize("flaw", ["no output domain", "two output domains", "another dtype"])
def test_a_fold_that_cannot_be_exact_is_left_alone(flaw):
    program = program_before_folding(ConstantCat())
    node = cat_node(program.graph_module)
    (domain,) = node.meta["output_qparams"].values()
    node.meta["output_qparams"] = {
        "no output domain": {},
        "two output domains": {0: domain, 1: domain._replace(zp=domain.zp + 1)},
        "another dtype": {0: domain._replace(dtype=torch.int16)},
    }[flaw]
    assert get_first_fake_tensor(node).dtype == torch.int8
    assert not FuseConstantArgsPass(program)._fuse_nodes(node)
    assert cat_node(program.graph_module) is node


def test_qparams_are_found_by_argument_through_nesting_and_keywords():
    program = program_before_folding(ConstantCat(second=(0.01, 3)))
    node = cat_node(program.graph_module)
    first, second = node.args[0]
    node.args, node.kwargs = (), {"tensors": (first, second), "dim": 1}
    assert ELEMENT_QPARAMS not in node.meta
    assert torch.equal(evaluated_codes(program, node), expected_constant(ConstantCat(second=(0.01, 3))))


def test_int_constants_without_qparams_fold_as_stock_folds_them():
    net, inputs = Lambda(lambda m, x: x[:, :, (torch.arange(4) + 1) * 1, :]), image()
    check_stocks_bytes(net, inputs, tosa("TOSA-1.0+FP"))


def test_the_seed_s_two_ramps():
    """Seed 2 on this ExecuTorch: fixed upstream from 1.3 on, and right with ours everywhere."""

    class Ramps(nn.Module):
        def forward(self):
            h = torch.linspace(-0.8, 0.8, 5).view(1, 1, 1, 5).expand(1, 1, 4, 5)
            v = torch.linspace(-0.75, 0.75, 4).view(1, 1, 4, 1).expand(1, 1, 4, 5)
            return torch.cat((h, v), 1)

    graph_module = quantize(Ramps(), (), tosa(PROFILES[0]), io=True)
    flatbuffers = delegates(lower(graph_module, (), SafeArmPartitioner(tosa(PROFILES[0]))))
    folded = [c for f in flatbuffers for c in constants(f).values() if sorted(c.shape) == [1, 2, 4, 5]]
    (reference,) = [graph_module()] if isinstance(graph_module(), torch.Tensor) else graph_module()
    output = next(n for n in graph_module.graph.nodes if n.op == "output").args[0]
    scale, zero_point = (output[0] if isinstance(output, (list, tuple)) else output).args[1:3]
    codes = torch.round(reference / scale) + zero_point
    assert folded
    assert sorted(folded[0].flatten().tolist()) == sorted(codes.flatten().int().tolist())
