"""Preflight: the smallest culprit leaves, in few trials, whatever fails; what must not be contained is not."""

import math
from dataclasses import replace

import faults
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.backends.arm.operator_support.tosa_supported_operators import CheckInt64InputsAndOutputs
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner
from lowering import PROFILES, codes_apart, delegates, executed, lower, output_steps, quantize
from prepared import prepared
from small import Lambda, image

from safe_arm import SafeArmPartitioner
from safe_arm.core.errors import DemotionError, DemotionWarning
from safe_arm.core.island import op_name
from safe_arm.core.record import Report
from safe_arm.partitioner import lowering
from safe_arm.partitioner.demotion import Demotion, warn_of


class Net(nn.Module):
    """conv, ReLU, tanh, conv, and an add that jumps over them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.conv_b = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return self.conv_b(torch.tanh(torch.nn.functional.relu(self.conv(x)))) + x


class Chain(nn.Module):
    """A tanh in the middle of a chain of sigmoids."""

    def __init__(self, length) -> None:
        super().__init__()
        self.length = length

    def forward(self, x):
        for index in range(self.length):
            x = torch.tanh(x) if index == self.length // 3 else torch.sigmoid(x)
        return x


CHAIN = Chain(3)


def export(net=CHAIN, profile=PROFILES[0], verify=False, **options):
    net = prepared(net, profile)
    partitioner = net.partitioner(verify=verify, **options)
    return net.lowered(partitioner), net.graph_module, partitioner.report


def demoted(report):
    return [verdict.op for verdict in report.demoted]


@pytest.mark.parametrize("fault", [faults.pass_raising_for, faults.pass_raising_blindly_for], ids=["named", "blind"])
def test_the_culprit_s_unit_leaves_and_nothing_else(profile, fault):
    with fault("aten::tanh"), pytest.warns(DemotionWarning, match=r"aten::tanh \(test_demotion.py:\d+  .*torch.tanh"):
        manager, quantised, report = export(Net().eval(), profile)
    assert demoted(report) == ["aten::tanh"]
    if fault is faults.pass_raising_for:
        assert report.demoted[0].reason.startswith("QuantizeClampArgumentsPass fails on it: RuntimeError: the injected")
        assert "torch.tanh" in report.demoted[0].source
    assert {v.op for v in report.fallbacks} == {"aten::tanh"}
    assert codes_apart(manager, quantised, image(), image(1, 1.5)) == 0
    assert len(delegates(manager)) == len(report.delegates) == 2


def test_the_warning_names_the_layer_as_it_was_written_and_what_that_costs():
    block = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Tanh()).eval()
    named = r"Tanh 1 \(aten::tanh\): .*; that is 0\.0 % of the MACs"
    with faults.visitor_raising("tosa.TABLE.default"), pytest.warns(DemotionWarning, match=named):
        _, _, report = export(block)
    (tanh,) = report.demoted
    assert (tanh.module, tanh.written, tanh.as_written) == ("1", "Tanh", "Tanh 1 (aten::tanh)")


def test_of_many_demotions_the_warning_describes_three():
    demotion = Demotion("", "a reason", (torch.fx.Graph().placeholder("x"),))
    with pytest.warns(DemotionWarning, match=r"CPU: (x: a reason[; ]*){3}\(and 2 more, see partitioner.report\)$"):
        warn_of([demotion] * 5, Report((), 0, 0))


def test_nothing_fails_nothing_is_demoted_and_nobody_warned(recwarn):
    _, _, report = export(strict=True)
    assert (report.demoted, report.trials) == ((), 1)
    assert not [w for w in recwarn if w.category is DemotionWarning]


@pytest.mark.parametrize(
    ("fault", "trials"),
    [
        # The whole, and what is left of it before and after.
        (faults.pass_raising_for, {3}),
        (faults.pass_raising_blindly_for, set(range(4 + math.ceil(math.log2(12))))),
    ],
    ids=["named", "blind"],
)
def test_a_culprit_takes_few_trials(fault, trials):
    with fault("aten::tanh"), pytest.warns(DemotionWarning):
        _, _, report = export(Chain(12))
    assert demoted(report) == ["aten::tanh"]
    assert report.trials in trials


def test_two_culprits_of_two_kinds():
    module = Lambda(lambda m, x: torch.sigmoid(m.conv(torch.tanh(x))))
    convolution = faults.visitor_raising("tosa.CONV2D.default")
    with faults.pass_raising_blindly_for("aten::tanh"), convolution, pytest.warns(DemotionWarning):
        manager, quantised, report = export(module)
    assert sorted(set(demoted(report))) == ["aten::convolution", "aten::tanh"]
    assert [v.op for v in report.compute if v.delegate] == ["aten::sigmoid"]
    assert codes_apart(manager, quantised, image()) == 0


def test_many_culprits_of_one_kind_do_not_take_a_round_each():
    with faults.pass_raising_for("aten::sigmoid"), pytest.warns(DemotionWarning):
        manager, quantised, report = export(Chain(8))
    assert set(demoted(report)) == {"aten::sigmoid"}
    assert [v.op for v in report.compute if v.delegate] == ["aten::tanh"]
    assert report.trials <= 14
    assert codes_apart(manager, quantised, image()) == 0


def test_a_backend_that_fails_on_everything_ends_in_a_program_that_runs():
    with (
        faults.pass_raising(),
        pytest.warns(DemotionWarning, match="NOTHING IS DELEGATED, .* First cause: .*injected fault"),
    ):
        manager, quantised, report = export(Chain(4))
    assert report.delegates == ()
    assert report.trials <= 24
    (step,) = output_steps(quantised)
    ((output,),) = executed(manager, image())
    assert torch.round((output - quantised(*image())).abs().max() / step) == 0


@pytest.mark.parametrize("fatal", [MemoryError, KeyboardInterrupt])
def test_what_is_not_the_backend_s_to_fail_on_is_not_swallowed(fatal):
    with faults.pass_raising(fatal), pytest.raises(fatal):
        export()


def test_who_was_blamed_for_what_went_on_without_it_is_put_back(monkeypatch):
    """The pass holds an innocent neighbour in its hands when it fails."""

    def call(self, graph_module):
        found = [n for n in graph_module.graph.nodes if op_name(n) == "aten::tanh"]
        if found:
            node = next(n for n in reversed(graph_module.graph.nodes) if op_name(n) == "aten::sigmoid")  # noqa: F841
            del found
            raise RuntimeError("of something else")
        return stock(self, graph_module)

    stock = faults.OPERATOR_PASS.call
    monkeypatch.setattr(faults.OPERATOR_PASS, "call", call)
    with pytest.warns(DemotionWarning):
        manager, quantised, report = export()
    assert demoted(report) == ["aten::tanh"]
    assert codes_apart(manager, quantised, image()) == 0


def test_strict_turns_the_first_demotion_into_an_error():
    expected = r"aten::tanh \(test_demotion.py:\d+ .*\): QuantizeClampArgumentsPass fails on it: RuntimeError: the inj"
    with faults.pass_raising_for("aten::tanh"), pytest.raises(DemotionError, match=expected):
        export(strict=True)


def test_twice_is_once():
    partitioner = prepared(CHAIN).partitioner()
    results = []
    for _ in range(2):
        with faults.pass_raising_for("aten::tanh"), pytest.warns(DemotionWarning):
            flatbuffers = delegates(prepared(CHAIN).lowered(partitioner))
        proofs = tuple(replace(each, seconds=0.0) for each in partitioner.report.verifications)
        results.append((flatbuffers, replace(partitioner.report, verifications=proofs)))
    assert results[0] == results[1]


def test_a_check_of_stock_s_that_raises_refuses_its_node(monkeypatch):
    stock = CheckInt64InputsAndOutputs.is_node_supported

    def raises_on_tanh(self, submodules, node):
        if op_name(node) == "aten::tanh":
            raise RuntimeError("min() of an empty tensor")
        return stock(self, submodules, node)

    monkeypatch.setattr(CheckInt64InputsAndOutputs, "is_node_supported", raises_on_tanh)
    manager, quantised, report = export()
    (verdict,) = [v for v in report.fallbacks if v.op == "aten::tanh"]
    assert verdict.stage == "partition"
    assert "CheckInt64InputsAndOutputs fails when asked about it: RuntimeError: min()" in verdict.reason
    assert codes_apart(manager, quantised, image()) == 0


def test_a_partitioner_that_raises_delegates_nothing_and_says_so(monkeypatch):
    monkeypatch.setattr(TOSAPartitioner, "_tag_module", faults.raising(RuntimeError("overlapping tags")))
    with pytest.warns(DemotionWarning, match="NOTHING IS DELEGATED: .*fails to partition the program: RuntimeError"):
        manager, _, report = export()
    assert report.delegates == ()
    assert all("overlapping tags" in verdict.reason for verdict in report.fallbacks)
    executed(manager, image())


def test_a_delegate_that_cannot_be_cut_out_loses_its_culprit(monkeypatch):
    def picky(program, specs):
        if any(op_name(n) == "aten::tanh" and n.meta.get("delegation_tag") in specs for n in program.graph.nodes):
            raise AssertionError
        return stock(program, specs)

    stock = lowering.delegate_programs
    monkeypatch.setattr(lowering, "delegate_programs", picky)
    with pytest.warns(DemotionWarning):
        manager, quantised, report = export()
    assert demoted(report) == ["aten::tanh"]
    assert codes_apart(manager, quantised, image()) == 0


SAMPLER = Lambda(lambda m, x, grid: F.grid_sample(torch.relu(x), grid, align_corners=False))
INPUTS = torch.rand(1, 2, 6, 6), torch.rand(1, 6, 6, 2) * 2 - 1


@pytest.mark.filterwarnings("ignore:demoted")
def test_a_registered_operator_that_cannot_be_lowered_leaves_its_delegate():
    """VGF registers grid sampling; stock takes what is registered whatever is refused, so that trials never ended."""
    spec = VgfCompileSpec("TOSA-1.0+INT+FP")
    graph_module = quantize(SAMPLER, INPUTS, spec)
    with pytest.raises(Exception, match="An error occurred when running"):
        lower(graph_module, INPUTS, VgfPartitioner(spec))
    partitioner = SafeArmPartitioner(spec, verify=False)
    lower(graph_module, INPUTS, partitioner)
    (demoted,) = partitioner.report.demoted
    assert demoted.op == "aten::grid_sampler_2d"
    assert "aten::relu" in {each.op for each in partitioner.report.verdicts if each.delegate}
    assert torch.ops.aten.grid_sampler_2d.default in {op._op for op in partitioner._custom_partition_ops}


def test_a_registered_operator_is_delegated_where_nothing_refuses_it():
    spec = VgfCompileSpec("TOSA-1.0+FP")
    partitioner = SafeArmPartitioner(spec, preflight=False)
    exported = torch.export.export(SAMPLER.eval(), INPUTS)
    lower(exported.module(), INPUTS, partitioner)
    assert not partitioner.report.fallbacks
