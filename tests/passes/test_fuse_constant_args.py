"""Constants are folded with each argument in its own quantisation domain."""

import pytest
import torch
from folding import Function, changed_once
from lowering import check_stocks_bytes, edge_program, lower_exactly, quantize, stock_codes_apart, tosa
from small import DQ, Lambda, Q, image, marked

from safe_arm._compat.upstream import FoldAndAnnotateQParamsPass, get_first_fake_tensor
from safe_arm.passes.fuse_constant_args import FuseConstantArgsPass
from safe_arm.passes.record_element_qparams import ELEMENT_QPARAMS, RecordElementQParamsPass

OUT = (0.02, 5, -128, 127, torch.int8)


class ConstantCat(torch.nn.Module):
    """x plus a cat of two int8 constants, each with qparams of its own."""

    def __init__(self, second=(0.04, -20)) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for name in ("a", "b"):
            codes = torch.randint(-60, 60, (1, 2, 8, 8), dtype=torch.int8, generator=generator)
            self.register_buffer(name, codes)
        self.second = second

    def forward(self, x):
        a = DQ(self.a, 0.01, 3, -128, 127, torch.int8)
        b = DQ(self.b, *self.second, -128, 127, torch.int8)
        joined = DQ(Q(torch.cat((a, b), 1), *OUT), *OUT)
        x = DQ(Q(x, *OUT), *OUT)
        return DQ(Q(x + joined, *OUT), *OUT)


def expected_constant(net):
    a, b = DQ(net.a, 0.01, 3, -128, 127, torch.int8), DQ(net.b, *net.second, -128, 127, torch.int8)
    return Q(torch.cat((a, b), 1), *OUT)


def test_stock_reads_the_second_element_in_the_first_one_s_domain_and_ours_in_its_own(profile):
    graph_module = marked(ConstantCat(), image())
    assert stock_codes_apart(graph_module, image(), tosa(profile)) > 4
    lower_exactly(graph_module, tosa(profile), image(), image(1, gain=2.0))


def test_one_shared_domain_gives_stock_s_bytes(profile):
    check_stocks_bytes(marked(ConstantCat(second=(0.01, 3)), image()), image(), tosa(profile))


def program_before_folding(net):
    program = edge_program(marked(net, image()), image())
    graph_module = RecordElementQParamsPass()(program.graph_module).graph_module
    program._graph_module = FoldAndAnnotateQParamsPass(program)(graph_module).graph_module
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
    (domain,) = node.meta["output_qparams"].values()
    return domain.quantize_value(FuseConstantArgsPass(program)._evaluate(node))


def test_twice_equals_once():
    program = program_before_folding(ConstantCat())
    assert "cat" not in changed_once(lambda: FuseConstantArgsPass(program), program.graph_module)


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


def ramps():
    """Two constants in one domain, and no input."""
    h = torch.linspace(-0.8, 0.8, 5).view(1, 1, 1, 5).expand(1, 1, 4, 5)
    v = torch.linspace(-0.75, 0.75, 4).view(1, 1, 4, 1).expand(1, 1, 4, 5)
    return torch.cat((h, v), 1)


def test_the_seed_s_two_ramps_are_exact(profile):
    lower_exactly(quantize(Function(ramps), (), tosa(profile), io=True), tosa(profile), ())
