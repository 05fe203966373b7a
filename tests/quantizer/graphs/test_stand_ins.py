"""A stand-in is asked for what its observer has."""

import copy
import pickle

import pytest
import torch
from torchao.quantization.pt2e.fake_quantize import FakeQuantize, FusedMovingAvgObsFakeQuantize
from torchao.quantization.pt2e.observer import MinMaxObserver, MovingAverageMinMaxObserver, PerChannelMinMaxObserver

from safe_arm.quantizer.graphs.stand_ins import StandIn, has_one_scale, is_averaging, shown, shown_alone


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


class OfTheUser(MovingAverageMinMaxObserver):
    """An observer of the user's."""


INT8 = {"quant_min": -128, "quant_max": 127, "dtype": torch.int8, "qscheme": torch.per_tensor_affine}
INT16 = {"quant_min": -32767, "quant_max": 32767, "dtype": torch.int16, "qscheme": torch.per_tensor_symmetric}
AVERAGING = {
    "fused": lambda: FusedMovingAvgObsFakeQuantize(MovingAverageMinMaxObserver, **INT8),
    "in steps": lambda: FakeQuantize(MovingAverageMinMaxObserver, **INT8),
    "int16": lambda: FusedMovingAvgObsFakeQuantize(MovingAverageMinMaxObserver, **INT16),
}
averaging = pytest.mark.parametrize("make", AVERAGING.values(), ids=AVERAGING)


def batch(low, high):
    return torch.linspace(low, high, 100)


def bounds(module):
    known = module.activation_post_process
    return float(known.min_val), float(known.max_val)


@averaging
def test_what_grows_is_clipped_in_stock_and_not_in_ours(make):
    stock, ours = make(), make()
    stock(batch(-1, 1))
    shown(ours, batch(-1, 1))
    x = batch(-8, 3)
    assert float((stock(x) - x).abs().max()) > 5
    # Half a step, and float32's rounding of the value.
    result = shown(ours, x)
    assert float((result - x).abs().max()) <= 0.501 * float(ours.scale)


@averaging
def test_a_range_grows_at_once_and_shrinks_as_in_stock_each_side_by_itself(make):
    module = make()
    low, high = -2.0, 2.0
    for batch_low, batch_high in ((-2, 2), (-1, 1), (-3, 0.5), (-1, 5), (0, 0)):
        shown(module, batch(batch_low, batch_high))
        low = min(low + 0.01 * (batch_low - low), batch_low)
        high = max(high + 0.01 * (batch_high - high), batch_high)
        # Stock computes in float32.
        assert bounds(module) == pytest.approx((low, high), rel=1e-6)


@averaging
def test_one_outlier_is_forgotten(make):
    module = make()
    shown(module, batch(-1, 100))
    for _ in range(700):
        shown(module, batch(-1, 1))
    # In codes: half of one.
    assert bounds(module) == pytest.approx((-1, 1 + 99 * 0.99**700), abs=float(module.scale) / 2)


def test_a_one_sided_range_stays_one_sided():
    module = AVERAGING["fused"]()
    for high in (1, 4, 2):
        shown(module, batch(0, high))
    assert bounds(module)[0] == 0
    assert int(module.zero_point) == -128


def test_what_was_beyond_the_range_has_a_gradient():
    module = AVERAGING["fused"]()
    shown(module, batch(-1, 1))
    x = batch(-5, 4).requires_grad_()
    shown(module, x).sum().backward()
    assert torch.equal(x.grad, torch.ones(100))


@averaging
def test_nothing_moves_once_observers_are_disabled_and_they_move_without_rounding(make):
    module = make()
    shown(module, batch(-1, 1))
    module.disable_observer()
    before = copy.deepcopy(module.state_dict())
    shown(module, batch(-9, 9))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    module.enable_observer()
    module.disable_fake_quant()
    assert torch.equal(shown(module, batch(-9, 9)), batch(-9, 9))
    assert bounds(module) == (-9, 9)


def test_nothing_at_all_changes_no_range():
    module = AVERAGING["fused"]()
    shown(module, batch(-1, 1))
    assert shown(module, torch.zeros(0)).numel() == 0
    assert bounds(module) == (-1, 1)


OTHERS = {
    "an observer of the user's": lambda: FusedMovingAvgObsFakeQuantize(OfTheUser, **INT8),
    "of a minimum and a maximum": lambda: FakeQuantize(MinMaxObserver, **INT8),
    "an observer that rounds nothing": lambda: MovingAverageMinMaxObserver(dtype=torch.int8),
    "dynamic": lambda: FakeQuantize(MovingAverageMinMaxObserver, is_dynamic=True, averaging_constant=1, **INT8),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_others_are_as_in_stock(make):
    stock, ours = make(), make()
    assert not is_averaging(ours)
    for x in (batch(-1, 1), batch(-9, 2)):
        assert torch.equal(shown(ours, x), stock(x))
    for name, value in stock.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value)


def test_the_range_of_a_value_alone_forgets_those_before():
    module = AVERAGING["fused"]()
    shown(module, batch(-9, 9))
    shown_alone(module, batch(-1, 2))
    assert bounds(module) == (-1, 2)
