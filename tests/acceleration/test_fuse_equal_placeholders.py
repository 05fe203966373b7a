"""Equal constants are fused as stock fuses them, with a signature for each group instead of each constant."""

import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import quantised_whole
from lowering import check_stocks_bytes, edge_program, tosa
from small import Lambda, image
from spying import noted
from stubborn import quantizer_of
from torch.export.graph_signature import ExportGraphSignature

from safe_arm._compat import upstream
from safe_arm.acceleration.fuse_equal_placeholders import FuseEqualPlaceholdersPass, at_once


class Equal(torch.nn.Module):
    """Parameters, buffers and constants, some of them equal: every third, every second, and pairs."""

    def __init__(self, count):
        super().__init__()
        self.count = count
        for i in range(count):
            self.register_parameter(f"p{i}", torch.nn.Parameter(torch.full((3,), float(i % 3))))
            self.register_buffer(f"b{i}", torch.full((3,), 10.0 + i % 2))
            self.register_buffer(f"n{i}", torch.full((2, 3), 20.0 + i // 2), persistent=False)
        self.constants = [torch.full((3,), 30.0 + i % 2) for i in range(count)]

    def forward(self, x):
        for i in range(self.count):
            x = x * getattr(self, f"p{i}") + getattr(self, f"b{i}") - getattr(self, f"n{i}") * self.constants[i]
        return x


def edge(net):
    return edge_program(net.eval(), (torch.randn(2, 3),))


def fused(program, pass_class):
    """What a pass leaves: code, places and names of the inputs, tensors."""
    special = upstream.TosaSpecialDtype.meta_key()
    for node in program.graph.find_nodes(op="placeholder")[::2]:
        node.meta[special] = upstream.TosaSpecialDtype.INT48
    result = pass_class(program).call(program.graph_module)
    signature = program.graph_signature
    specs = [(s.kind, s.arg.name, s.target, s.persistent) for s in signature.input_specs]
    graph = result.graph_module.graph
    nodes = [(n.op, n.name, str(n.target), str(n.meta.get("val")), n.meta.get(special)) for n in graph.nodes]
    tensors = {name: value.tolist() for name, value in (program.state_dict | program.constants).items()}
    return result.modified, result.graph_module.code, nodes, specs, signature.output_specs, tensors


def test_the_program_is_the_one_that_stock_leaves():
    stock = fused(edge(Equal(3)), upstream.FuseEqualPlaceholdersPass)
    ours = fused(edge(Equal(3)), FuseEqualPlaceholdersPass)
    assert stock[0]
    assert ours == stock
    assert len(ours[3]) < 3 * 4 + 1


def test_fusing_twice_is_fusing_once():
    program = edge(Equal(4))
    once = fused(program, FuseEqualPlaceholdersPass)
    assert fused(program, FuseEqualPlaceholdersPass)[1:] == once[1:]


def test_different_constants_are_left_alone():
    program = edge(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 3)))
    signature = program.graph_signature
    modified, *_ = fused(program, FuseEqualPlaceholdersPass)
    assert not modified
    assert program.graph_signature is signature


def signatures_made(monkeypatch, pass_class, count):
    """How many tables of all inputs a pass builds."""
    program = edge(Equal(count))
    with monkeypatch.context() as patch:
        made = noted(patch, ExportGraphSignature, "__post_init__", lambda self: len(self.input_specs))
        pass_class(program).call(program.graph_module)
    return sum(made)


def test_stock_looks_at_all_inputs_for_each_constant_and_ours_once(monkeypatch):
    def growth(pass_class):
        return signatures_made(monkeypatch, pass_class, 6) / signatures_made(monkeypatch, pass_class, 3)

    assert growth(upstream.FuseEqualPlaceholdersPass) > 3
    assert growth(FuseEqualPlaceholdersPass) < 2.5


def test_equal_constants_in_a_branch_are_fused_as_stock_fuses_them():
    """A branch has inputs that the program's signature does not list."""

    def halved(m, x):
        return torch.cond(x.sum() > 0, lambda y: (y * 0.5, y * 9 + 0.5), lambda y: (y * 2, y * 3 + 2), (x.tanh(),))

    samples = [image(), image(1, -1.0)]
    with torch.no_grad():
        quantizer = quantizer_of(TOSAQuantizer, "TOSA-1.0+INT+cf")
        graph_module = quantised_whole(quantizer, Lambda(halved), samples)
    check_stocks_bytes(graph_module, samples[0], tosa("TOSA-1.0+INT+cf"))


def test_a_pass_of_an_earlier_release_stays():
    class Earlier:
        pass

    earlier = Earlier()
    assert at_once(earlier) is earlier
