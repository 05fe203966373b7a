"""Real weights are found by name, shape and dtype, or it is said that they are made up."""

from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from safe_arm.partitioner.weights import Weights


def program(**tensors):
    return SimpleNamespace(state_dict=tensors)


def faked(real):
    mode = FakeTensorMode()
    return program(**{name: mode.from_tensor(tensor) for name, tensor in real.state_dict.items()})


REAL = program(weight=torch.randn(2, 3), codes=torch.ones(4, dtype=torch.int8))


def test_the_very_tensors_come_back():
    weights = Weights()
    weights.remember(REAL)
    state, real = weights.of(faked(REAL))
    assert real
    assert all(state[name] is REAL.state_dict[name] for name in REAL.state_dict)


def test_a_real_program_brings_its_own():
    assert Weights().of(REAL) == (REAL.state_dict, True)


def test_of_two_methods_each_gets_its_own():
    other = program(weight=torch.randn(5, 3), codes=torch.ones(4, dtype=torch.int8))
    weights = Weights()
    weights.remember(REAL)
    weights.remember(other)
    assert weights.of(faked(REAL))[0]["weight"] is REAL.state_dict["weight"]
    assert weights.of(faked(other))[0]["weight"] is other.state_dict["weight"]


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(None, id="nothing seen"),
        pytest.param(program(weight=torch.randn(2, 3)), id="a name missing"),
        pytest.param(program(weight=torch.randn(3, 2), codes=torch.ones(4, dtype=torch.int8)), id="another shape"),
        pytest.param(program(weight=torch.randn(2, 3), codes=torch.ones(4)), id="another dtype"),
    ],
)
def test_anything_else_is_made_up(seen):
    weights = Weights()
    if seen is not None:
        weights.remember(seen)
    state, real = weights.of(faked(REAL))
    assert not real
    for name, tensor in REAL.state_dict.items():
        assert (state[name].shape, state[name].dtype) == (tensor.shape, tensor.dtype)
    assert state["weight"].min() > 0, "a made-up scale must be positive"
