"""A stand-in is asked for what its observer has."""

import copy
import pickle

import pytest
import torch
from torchao.quantization.pt2e.observer import MinMaxObserver, PerChannelMinMaxObserver

from safe_arm.quantizer.stand_ins import StandIn, has_one_scale


def seen():
    """The stand-in of an observer that was shown values."""
    observer = MinMaxObserver()
    observer(torch.tensor([-1.0, 3.0]))
    return StandIn(observer)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each)), lambda each: each])
def test_it_has_what_its_observer_has(copied):
    stand_in = copied(seen())
    assert (stand_in.min_val, stand_in.max_val) == (-1, 3)
    assert torch.equal(stand_in.calculate_qparams()[0], seen().observer.calculate_qparams()[0])


def test_a_value_has_one_scale_only_where_it_is_observed_once_for_all():
    assert has_one_scale(MinMaxObserver())
    assert not has_one_scale(None)
    assert not has_one_scale(PerChannelMinMaxObserver())


def test_what_neither_has_is_missing():
    assert not hasattr(seen(), "convert")
