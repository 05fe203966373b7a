"""The graphs of a loop keep their names, by which stock looks for them, and the user's program keeps its graphs."""

import torch
from small import Lambda
from stubborn import exported, quantizer_of
from torch._higher_order_ops.while_loop import while_loop
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

from safe_arm.quantizer.graphs.branch_names import name_branches, names_of_branches

X = torch.tensor([[0.5, -1.0, 2.0]])


def test_graphs_get_their_names_back_and_keep_them():
    model = exported(Lambda(lambda m, x: while_loop(lambda h: h.sum() < 4, lambda h: (h + 0.25,), (x,))[0]), (X,))
    expected = model(X)
    names = names_of_branches(model)
    name_branches(model, ["submodule_0", "submodule_1"])
    assert names_of_branches(model) == ["submodule_0", "submodule_1"]
    for _ in range(2):
        name_branches(model, names)
        assert names_of_branches(model) == names
        assert torch.equal(model(X), expected)


def test_other_graphs_than_there_were_keep_theirs():
    model = exported(Lambda(lambda m, x: torch.cond(x.sum() > 0, torch.neg, torch.abs, (x,))), (X,))
    name_branches(model, ["submodule_0", "submodule_1", "submodule_2", "submodule_3"])
    assert names_of_branches(model) == ["true_graph_0", "false_graph_0"]


def test_preparing_changes_no_branch_of_the_users_program():
    def rule(m, x):
        def body(i, h):
            return i + 1, torch.cond(h.sum() > 0, lambda h: h + torch.arange(3) * 0.1, torch.abs, (h,))

        return while_loop(lambda i, h: i < 4, body, (torch.tensor(0), x))[1]

    program = torch.export.export(Lambda(rule), (X,))
    before = program.graph_module.print_readable(print_output=False)
    quantizer = quantizer_of(profile="TOSA-1.0+INT+cf")
    prepare_pt2e(program.module(check_guards=False), quantizer)
    assert quantizer.left_float == ()
    assert program.graph_module.print_readable(print_output=False) == before
