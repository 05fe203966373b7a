"""What a branch reads besides its operands is a number, or an operand: it may be nested, and tensors may be large."""

import pytest
import torch
from branching import ON_DEVICE, quantised
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import by_one_call, lower_exactly, tosa
from ratios import ratio
from small import Lambda, image
from stubborn import exported, quantizer_of
from torch._higher_order_ops.while_loop import while_loop
from torch.fx import GraphModule

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.graphs.branch_constants import fill_branches, pass_tensors_in

IMAGE = image()[0] - image()[0].mean() + 0.05
SAMPLES = [(IMAGE,), (-IMAGE,)]


def centred(m, x):
    """Stock writes a mean as a sum times a tensor of one element."""
    return torch.cond(x.sum() > 0, lambda x: x - x.mean((2, 3), keepdim=True), torch.relu, (x,))


def nested(m, x):
    def inner(x):
        return torch.cond((x * 3).sum() > 60, torch.tanh, lambda x: x.sigmoid() * 0.5, (x * 0.3 + 0.1,))

    return torch.cond(x.sum() > 0, inner, torch.relu, (x,))


def scaled(m, x):
    """Stock raises on a tensor of several elements."""
    return torch.cond(x.sum() > 0, lambda x: x * torch.tensor([0.5, 2.0] * 4), torch.relu, (x,))


def both_scaled(m, x):
    """Each branch has a tensor of its own; one of them is within another branch."""

    def inner(x):
        return torch.cond(x.amax() > 1, lambda x: x + torch.tensor([0.5, 0.25] * 4), torch.tanh, (x,))

    return torch.cond(x.sum() > 0, inner, lambda x: x * torch.tensor([1.0, 0.5] * 4), (x,))


def each_scaled(m, x):
    """The tensors of both branches have one name, each in its own."""
    return torch.cond(
        x.sum() > 0, lambda x: x * torch.tensor([0.5, 2.0] * 4), lambda x: x * torch.tensor([1.0, -3.0] * 4), (x,)
    )


def looped(m, x):
    def body(x):
        return (x * torch.tensor([0.75, 0.5] * 4) - x.mean((2, 3), keepdim=True),)

    return while_loop(lambda x: x.amax() > 0.5, body, (x,))[0]


def computed(m, x):
    """What is computed of no input is a tensor of several elements."""
    return torch.cond(
        x.sum() > 0,
        lambda x: x.masked_fill(torch.ones(8, 8).tril() == 0, 0.0),
        lambda x: x + torch.arange(8) * 0.1,
        (x,),
    )


def pooled(m, x):
    """Behind a pool stands no convolution with a tensor of equal weights."""
    return torch.cond(x.sum() > 0, lambda x: x + torch.nn.functional.avg_pool2d(x, 8), torch.relu, (x,))


def skipped(m, x):
    """Export copies the operand that a branch returns."""
    return torch.cond(x.sum() > 0, lambda x: torch.dropout(x.clone(), 0.5, False), torch.relu, (x,))


RULES = {"centred": centred, "nested": nested, "scaled": scaled, "both scaled": both_scaled, "looped": looped}
RULES |= {"each scaled": each_scaled, "computed": computed, "pooled": pooled, "skipped": skipped}


def read_in_branches(graph_module):
    """The tensors that branches read of their own."""
    branches = [module for module in graph_module.modules() if isinstance(module, GraphModule)][1:]
    reads = [(branch, read.target) for branch in branches for read in branch.graph.find_nodes(op="get_attr")]
    return [target for branch, target in reads if isinstance(getattr(branch, target), torch.Tensor)]


def test_stock_cannot_trace_a_branch_that_reads_a_tensor():
    with pytest.raises(RuntimeError, match="FunctionalTensor"):
        torch.export.export(quantised(centred, SAMPLES, TOSAQuantizer), SAMPLES[0]).run_decompositions({})


def test_stock_takes_no_tensor_of_several_elements():
    with pytest.raises(Exception, match="ControlFlowConstInlinePass"):
        quantised(scaled, SAMPLES, TOSAQuantizer)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_one_delegate_computes_it_exactly(rule):
    graph_module = quantised(rule, SAMPLES)
    assert not read_in_branches(graph_module)
    assert ratio(graph_module, rule, SAMPLES) > 25
    lower_exactly(graph_module, tosa(ON_DEVICE), *SAMPLES)


def test_the_net_that_was_handed_in_is_as_it_was():
    model = exported(Lambda(both_scaled), SAMPLES[0])
    before = [str(each.graph) for each in model.modules() if isinstance(each, GraphModule)], dict(model.named_buffers())
    with torch.no_grad():
        by_one_call(quantizer_of(SafeTOSAQuantizer, ON_DEVICE), model, SAMPLES)
    after = [str(each.graph) for each in model.modules() if isinstance(each, GraphModule)], dict(model.named_buffers())
    assert after[0] == before[0]
    assert list(map(id, after[1].values())) == list(map(id, before[1].values()))


def test_a_net_keeps_its_tensors():
    model = exported(Lambda(lambda m, x: m.conv(x) * torch.tensor([0.5, 2.0] * 4)), SAMPLES[0])
    before = str(model.graph)
    pass_tensors_in(model)
    fill_branches(model)
    assert str(model.graph) == before


def test_twice_is_once():
    model = exported(Lambda(both_scaled), SAMPLES[0])
    pass_tensors_in(model)
    once = [str(each.graph) for each in model.modules() if isinstance(each, GraphModule)]
    pass_tensors_in(model)
    assert [str(each.graph) for each in model.modules() if isinstance(each, GraphModule)] == once
    assert torch.equal(model(IMAGE), both_scaled(None, IMAGE))
