"""Operators that look alike are evaluated once, and a re-trace gives what it gave."""

import pytest
import torch
from executorch.exir import to_edge
from lowering import EDGE, HISTOGRAM, codes_apart, edge_program, lower_program, tosa
from patches_of import patched
from small import Lambda, described, image
from stubborn import quantizer_of
from torch._ops import OpOverload
from torch.fx import Interpreter
from torch.fx.experimental.proxy_tensor import make_fx

from safe_arm import SafeArmPartitioner
from safe_arm._compat.upstream import ExportPass
from safe_arm.acceleration import fake_values, retraces

#: Of the profile whose delegates have control flow.
WITH_BRANCHES = "TOSA-1.0+INT+cf"


@pytest.fixture
def evaluated(monkeypatch):
    """The operators really evaluated, with our wrapper round it."""
    seen = []
    stock = Interpreter.call_function

    def counting(self, target, args, kwargs):
        if type(self) is Interpreter:
            seen.append(target)
        return stock(self, target, args, kwargs)

    monkeypatch.setattr(Interpreter, "call_function", counting)
    with patched(retraces):
        yield seen
    assert Interpreter.call_function is counting


def graph_module(forward):
    return edge_program(Lambda(forward), image()).graph_module


def retraced(module):
    return ExportPass()(module).graph_module


CHAIN = graph_module(lambda m, x: torch.relu(torch.relu(torch.relu(x))) + x.to(torch.float64).relu())


def test_stock_evaluates_every_operator_and_ours_one_of_a_kind_to_the_same(evaluated):
    expected = described(retraced(CHAIN))
    operators = [n for n in CHAIN.graph.nodes if n.op == "call_function"]
    assert len(evaluated) == len(operators)
    evaluated.clear()
    with fake_values.remembered():
        assert described(retraced(CHAIN)) == expected
        assert len(evaluated) == len({(n.target, n.meta["val"].dtype) for n in operators})
        evaluated.clear()
        assert described(retraced(CHAIN)) == expected
    assert evaluated == []


DIFFERENT = {
    "strides": lambda m, x: torch.relu(x) + torch.relu(x.to(memory_format=torch.channels_last)),
    "constants": lambda m, x: x.sum(1).sum(1) + x.sum(2).sum(1),
    "an integer is no float": lambda m, x: torch.full_like(x, 1).add(torch.full_like(x, 1.0)),
    "dtypes": lambda m, x: (x.int() + 1).float() + x.to(torch.int64).float(),
    "several results": lambda m, x: torch.cat(x.chunk(2, 1)) + torch.cat(x.split(2, 1)),
    "shapes": lambda m, x: torch.relu(x[:, 1:]).sum() + torch.relu(x).sum(),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_looks_different_is_kept_apart(name):
    module = graph_module(DIFFERENT[name])
    expected = described(retraced(module))
    with patched(retraces), fake_values.remembered():
        assert described(retraced(module)) == expected
        assert described(retraced(retraced(module))) == expected


def test_values_that_look_alike_stay_two(evaluated):
    module = graph_module(lambda m, x: torch.relu(x) + torch.relu(x * 2))
    with fake_values.remembered():
        first, second = (n.meta["val"] for n in retraced(module).graph.nodes if "relu" in n.name)
    assert first is not second


def test_symbolic_sizes_are_evaluated_each_time(evaluated):
    net = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU())
    batch = torch.export.Dim("batch", min=2, max=8)
    exported = torch.export.export(net, (torch.randn(3, 4),), dynamic_shapes=({0: batch},))
    module = to_edge(exported, compile_config=EDGE).exported_program().graph_module
    evaluated.clear()
    with fake_values.remembered():
        retraced(module)
    assert len(evaluated) == 2


def test_an_interpreter_of_somebody_else_s_is_left_alone(evaluated):
    ran = []

    class Recording(Interpreter):
        def call_function(self, target, args, kwargs):
            ran.append(target)
            return super().call_function(target, args, kwargs)

    inputs = [n.meta["val"] for n in CHAIN.graph.nodes if n.op == "placeholder"]
    with fake_values.remembered(), inputs[0].fake_mode:
        Recording(CHAIN).run(*inputs)
    assert len([target for target in ran if isinstance(target, OpOverload) or hasattr(target, "_op")]) == len(ran)
    assert len(ran) == len([n for n in CHAIN.graph.nodes if n.op == "call_function"])


def test_a_tracer_sees_each_operator(evaluated):
    def run(x):
        return Interpreter(CHAIN).run(x)

    wanted = make_fx(run, tracing_mode="fake")(*image())
    with fake_values.remembered():
        traced = make_fx(run, tracing_mode="fake")(*image())
    assert traced.code == wanted.code
    assert not list(traced.buffers())


class InBranches(torch.nn.Module):
    """Convolutions in a branch and in the branches of a branch."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.convs = torch.nn.ModuleList(torch.nn.Conv1d(2, 4, 3, padding=1) for _ in range(3))

    def forward(self, x):
        def inner(x):
            return torch.cond(x.mean() > 0.5, self.convs[0], self.convs[1], [x])

        return torch.cond(x.sum() > 0, inner, self.convs[2], [x])


@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
@pytest.mark.parametrize("seed", [3, 4, 8])
def test_a_branch_of_a_branch_is_lowered_whatever_its_weights(seed):
    """Of some weights two results get one scale: their quantisers look alike, and did not come from one trace."""
    samples = [(gain * torch.ones(1, 2, 8),) for gain in (1, 0.1, -1)]
    quantizer = quantizer_of(profile=WITH_BRANCHES, config=HISTOGRAM)
    exported = torch.export.export(InBranches(seed).eval(), samples[0], strict=True).module(check_guards=False)
    graph_module = quantizer._quantize_with_submodules(exported, samples)
    program = torch.export.export(graph_module, samples[0], strict=True)
    partitioner = SafeArmPartitioner(tosa(WITH_BRANCHES))
    manager = lower_program(program, partitioner)
    assert codes_apart(manager, graph_module, *samples) == 0
