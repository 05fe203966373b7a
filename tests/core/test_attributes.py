"""A module is copied whole, whatever tensors it holds."""

import copy

import pytest
import torch

from safe_arm.core.attributes import duplicate


def holding(value):
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    module[0].computed = value
    return module


def test_a_tensor_computed_with_gradients_on_is_copied_where_torch_refuses_it():
    module = holding(torch.nn.Parameter(torch.ones(2)).softmax(0))
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(module)
    twin = duplicate(module)
    assert torch.equal(twin[0].computed, module[0].computed)
    assert twin[0].computed.data_ptr() != module[0].computed.data_ptr()


def test_everything_else_is_copied_as_deepcopy_does():
    module = holding(torch.ones(2))
    twin = duplicate(module)
    assert torch.equal(twin[0].weight, module[0].weight)
    assert twin[0].weight is not module[0].weight
    assert twin[0].weight.requires_grad
