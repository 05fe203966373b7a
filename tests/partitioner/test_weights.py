"""Real weights are found by identity, or it is said that they are made up."""

from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from safe_arm.partitioner import weights
from safe_arm.partitioner.weights import weights_of


def program(**tensors):
    return SimpleNamespace(state_dict=tensors)


def faked(real, mode=None):
    mode = mode or FakeTensorMode()
    return program(**{name: mode.from_tensor(tensor) for name, tensor in real.state_dict.items()})


def real_program():
    return program(weight=torch.nn.Parameter(torch.randn(2, 3)), codes=torch.ones(4, dtype=torch.int8))


@pytest.mark.parametrize("given", [faked, lambda real: real], ids=["fake", "real"])
def test_the_very_tensors_come_back(given):
    real = real_program()
    state, true = weights_of(given(real))
    assert true
    assert all(state[name] is tensor for name, tensor in real.state_dict.items())


def test_two_programs_alike_in_one_mode_are_told_apart():
    mode, first, second = FakeTensorMode(), real_program(), real_program()
    fakes = faked(first, mode), faked(second, mode)
    for fake, real in zip(fakes, (first, second), strict=True):
        assert weights_of(fake)[0]["weight"] is real.state_dict["weight"]


def test_what_is_gone_is_made_up():
    fake = faked(real_program())  # The real one is not kept.
    state, true = weights_of(fake)
    assert not true
    for name, tensor in fake.state_dict.items():
        assert (state[name].shape, state[name].dtype) == (tensor.shape, tensor.dtype)
    assert state["weight"].min() >= 0.5, "a made-up scale must be positive"
    assert isinstance(state["weight"], torch.nn.Parameter)


@pytest.mark.parametrize("lost", ["fake_tensor_converter", "meta_converter"])
def test_a_torch_that_keeps_them_elsewhere_is_no_crash(lost, monkeypatch):
    real = real_program()
    fake = faked(real)
    owner = fake.state_dict["weight"].fake_mode
    if lost == "meta_converter":
        owner = owner.fake_tensor_converter
    monkeypatch.delattr(owner, lost)
    assert weights.weights_of(fake)[1] is False
