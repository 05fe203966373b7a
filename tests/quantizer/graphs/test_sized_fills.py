"""Tensors of one number with the sizes of another are constants, of the same sizes, strides and dtype."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import get_symmetric_a16w8_quantization_config as int16
from graph_changes import changes
from lowering import PROFILES, by_one_call, lower_program, targets, tosa
from rewriting import Rewriting
from stateful import stateful
from stepping import called
from stubborn import exported, quantizer_of

from safe_arm import SafeArmPartitioner
from safe_arm.quantizer.graphs.sized_fills import store_fills

INPUTS = (torch.randn(1, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([[True, False, False, True]]))

RULES = {
    "zeros": lambda m, x, reset: torch.where(reset, torch.zeros_like(m.state), m.state) + x,
    "a number": lambda m, x, reset: torch.where(reset, torch.full_like(m.state, 0.25), m.state) + x,
    "part of a state": lambda m, x, reset: x - torch.ones_like(m.rows[1:2]),
    "of a mask": lambda m, x, reset: x + torch.zeros_like(reset, dtype=torch.float32),
    "new": lambda m, x, reset: torch.where(reset, x.new_zeros(1, 4), x) + m.state.new_full((1, 4), 0.5),
    "filled": lambda m, x, reset: torch.where(reset, torch.fill(m.state, 0.5), x),
    "integers": lambda m, x, reset: x + torch.where(reset, torch.full_like(m.calls, 3), m.calls),
    "truth values": lambda m, x, reset: torch.where(reset | torch.zeros_like(reset), x, 0.5),
    "written in place": lambda m, x, reset: torch.zeros_like(m.state).add_(x) + torch.ones_like(x).mul_(x).add_(x),
    "other strides": lambda m, x, reset: torch.ones_like(m.rows.t()) + x,
}


class TestFills(Rewriting):
    step = staticmethod(store_fills)
    inputs = INPUTS
    written = RULES
    wrong: ClassVar = {}
    gone = ("aten.zeros_like", "aten.ones_like", "aten.full_like", "aten.new_zeros", "aten.new_full", "aten.fill")
    kept: ClassVar = {
        "random": lambda m, x, reset: x + torch.rand_like(m.state),
        "not filled": lambda m, x, reset: torch.empty_like(m.state).copy_(x),
        "a number that is computed": lambda m, x, reset: x + torch.fill(m.state, x[0, 0]),
        "an output alone": lambda m, x, reset: (x + m.state, torch.zeros_like(m.state)),
    }

    def case(self, row):
        return stateful(row), self.inputs


def test_what_is_written_into_a_fill_is_gone_by_the_next_call():
    model = exported(stateful(RULES["written in place"]), INPUTS)
    store_fills(model)
    assert torch.equal(model(*INPUTS), model(*INPUTS))
    assert "zeros_like.default" not in model.code


def test_a_constant_has_the_sizes_strides_and_dtype():
    for name in RULES:
        model = exported(stateful(RULES[name]), INPUTS)
        fills = [node.meta["val"] for node in model.graph.nodes if str(node.target).startswith("aten.")]
        wanted = {(value.dtype, value.shape, value.stride()) for value in fills}
        store_fills(model)
        for node in model.graph.find_nodes(op="get_attr"):
            if str(node.target).startswith("fill_"):
                value = getattr(model, node.target)
                assert (value.dtype, value.shape, value.stride()) in wanted


def test_dynamic_sizes_stay():
    rule = lambda m, x, reset: torch.where(reset, torch.zeros_like(x), x)  # noqa: E731
    model = exported(stateful(rule), (torch.randn(3, 4), INPUTS[1]), ({0: torch.export.Dim("rows")}, (None,)))
    assert not changes(store_fills, model)


def reset_state(write):
    def rule(m, x, reset):
        state = write(m.state, reset) * 0.5 + x
        m.state.copy_(state)
        return state * 0.75

    return rule


STATES = {
    "where": lambda state, reset: torch.where(reset, torch.zeros_like(state), state),
    "masked_fill": lambda state, reset: state.masked_fill(reset, 0.0),
    "full_like": lambda state, reset: torch.where(reset, torch.full_like(state, 0.25), state),
}


@pytest.mark.parametrize("profile", [*PROFILES[:2], "TOSA-1.0+INT+int16"])
@pytest.mark.parametrize("name", STATES)
def test_a_state_is_reset_in_the_one_delegate(name, profile):
    is_int16 = "int16" in profile
    quantizer = quantizer_of(profile=profile, config=int16() if is_int16 else None)
    generator = torch.Generator().manual_seed(0)
    samples = [(torch.rand(1, 4, generator=generator), torch.arange(4)[None] % 3 == call % 4) for call in range(8)]
    net = stateful(reset_state(STATES[name]))
    quantised = by_one_call(quantizer, exported(net, samples[0]), samples)
    partitioner = SafeArmPartitioner(tosa(profile))
    manager = lower_program(torch.export.export(quantised, samples[0]), partitioner)
    report = partitioner.report
    assert len(report.delegates) == 1
    assert report.fallbacks == ()
    assert all(each.verified and not each.apart_worst for each in report.verifications)
    program = manager.exported_program()
    assert not any("like" in target for target in targets(program.graph_module))
    step = 2.0 / (2**14 if is_int16 else 2**8)
    # Two products, a sum and the state are rounded, and each state has half the errors of the one before.
    for sample in samples:
        (given,) = called(program, sample)
        assert float((given - net(*sample)).abs().max()) <= 4 * step
