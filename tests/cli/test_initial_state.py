"""What safe-arm export writes begins with the net's state (known issue E5)."""

import pytest
import torch
from command_line import invoke
from executorch.exir import ExecutorchBackendConfig
from executorch.runtime import Runtime
from lowering import delegates, lower, tosa

from safe_arm import SafeArmPartitioner
from safe_arm.cli.initial_state import config_with_state

STEPS = [torch.full((1, 4), value) for value in (1.0, 2.0, 3.0)]


class Begun(torch.nn.Module):
    """A state and a count that begin with something, and a constant."""

    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.full((1, 4), 5.0))
        self.register_buffer("state_of_others", torch.full((1, 4), 0.25))
        self.register_buffer("calls", torch.full((1,), 7, dtype=torch.int64))

    def forward(self, x):
        self.state.mul_(0.5).add_(x)
        self.calls.add_(1)
        return self.state + self.state_of_others, self.calls * 1


def results(call):
    return [[value.clone() for value in call(step)] for step in STEPS]


def run(program):
    method = Runtime.get().load_program(program).load_method("forward")
    return results(lambda step: method.execute([step]))


@pytest.fixture
def edge():
    """Floats, which this target leaves to the runtime's kernels."""
    manager = lower(Begun(), (STEPS[0],), SafeArmPartitioner(tosa("TOSA-1.0+INT")))
    assert not delegates(manager)
    return manager


def test_stock_begins_with_zeros(edge):
    (first, calls), *_ = run(edge.to_executorch(ExecutorchBackendConfig()).buffer)
    assert torch.equal(first, STEPS[0] + 0.25)
    assert calls.item() == 1


def test_ours_begins_with_the_net_s(edge):
    config = config_with_state(edge)
    torch.testing.assert_close(run(edge.to_executorch(config).buffer), results(Begun()), rtol=0, atol=0)
    assert [each.patterns for each in config.passes] == [["b_calls", "b_state"]]


def test_a_program_without_state_needs_nothing():
    assert config_with_state(lower(torch.nn.ReLU(), (STEPS[0],))).passes == []


class Counted(torch.nn.Module):
    """Nothing that TOSA takes, so that all of it runs here."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.full((1,), 7, dtype=torch.float64))

    def forward(self, x):
        self.calls.add_(1)
        return x.double() * 2, self.calls * 1


def test_the_command_writes_it(save, tmp_path):
    model, output = save(Counted(), (STEPS[0],), tmp_path / "counted.pt2"), tmp_path / "counted.pte"
    invoke("export", model, "--target=tosa", "--profile=TOSA-1.0+FP", f"--output={output}", "--allow-empty")
    assert [int(calls) for _, calls in run(output.read_bytes())] == [8, 9, 10]
