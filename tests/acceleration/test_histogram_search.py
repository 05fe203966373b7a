"""The range that a histogram is clipped to is found on floats, the same one to the bit."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering import PROFILES, quantize, tosa
from small import Residual, image
from spying import noted
from torchao.quantization.pt2e import DerivedObserverOrFakeQuantize
from torchao.quantization.pt2e.observer import HistogramObserver, MinMaxObserver

from safe_arm.acceleration import histogram_search, switch
from safe_arm.acceleration.histogram_search import on_floats

SEARCH = "_non_linear_param_search"


def observer(*seen, bins=2048):
    made = HistogramObserver(dtype=torch.int8, quant_min=-128, quant_max=127, bins=bins)
    for values in seen:
        made(values)
    return made


def quickly(made):
    with on_floats(made):
        assert SEARCH in vars(made)
        return getattr(made, SEARCH)()


def stock_search():
    """The search of torchao's own, which the tests replace."""
    search = getattr(HistogramObserver, SEARCH)
    return getattr(search, "stock", search)


def same(made):
    assert SEARCH not in vars(made)
    stock, ours = stock_search()(made), quickly(made)
    assert [each.view(torch.int32).tolist() for each in stock] == [each.view(torch.int32).tolist() for each in ours]
    assert SEARCH not in vars(made)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=40), min_size=1, max_size=3),
    st.sampled_from([8, 256, 2048]),
)
def test_few_values_have_the_range_that_stock_finds(seen, bins):
    same(observer(*map(torch.tensor, seen), bins=bins))


@pytest.mark.parametrize("bins", [16, 2048])
@pytest.mark.parametrize("seed", range(6))
def test_a_histogram_with_steps_at_the_quantiles_has_the_range_that_stock_finds(seed, bins):
    """Equal counts, whose sums are where the quantiles step to: a tie is decided by what float32 rounds to."""
    generator = torch.Generator().manual_seed(seed)
    made = observer(torch.linspace(-1, 1, 100), bins=bins)
    made.histogram.copy_(torch.randint(0, 2, (bins,), generator=generator) * (100_000 // bins))
    same(made)


@pytest.mark.parametrize("values", [[0.0], [3.0, 3.0], [-1e-38, 1e-38], [1e30, -1.0], [math.inf, 1.0]])
def test_extreme_values_have_the_range_that_stock_finds(values):
    same(observer(torch.tensor(values)))


def test_no_element_of_a_tensor_is_compared(monkeypatch):
    made = observer(torch.randn(1, 3, 2, 2, generator=torch.Generator().manual_seed(0)))
    count = noted(monkeypatch, torch.Tensor, "__lt__")
    stock_search()(made)
    assert len(count) > 500
    count.clear()
    quickly(made)
    assert not count


class Own(HistogramObserver):
    def _non_linear_param_search(self):
        return self.min_val, self.max_val


@pytest.mark.parametrize("other", [MinMaxObserver, Own])
def test_another_observer_is_left_alone(other):
    made = other(dtype=torch.int8, quant_min=-128, quant_max=127)
    made(torch.ones(3))
    with on_floats(made):
        assert SEARCH not in vars(made)


def test_a_derived_observer_s_sources_search_quickly():
    source, weight = observer(torch.ones(3)), MinMaxObserver(dtype=torch.int8)
    derived = DerivedObserverOrFakeQuantize(torch.int32, [source, weight, source], derive_qparams_fn=lambda each: None)
    further = DerivedObserverOrFakeQuantize(torch.int32, [derived], derive_qparams_fn=lambda each: None)
    for each in (derived, further):
        with on_floats(each):
            assert SEARCH in vars(source)
            with on_floats(source):
                pass
            assert SEARCH in vars(source)
        assert SEARCH not in vars(source)


@pytest.mark.parametrize("net", [torch.nn.Conv2d(4, 4, 1), torch.nn.LayerNorm(8)], ids=["a bias", "a norm"])
def test_no_search_of_a_quantised_net_is_stock_s(net, monkeypatch):
    quick = noted(monkeypatch, HistogramObserver, "calculate_qparams", lambda self: SEARCH in vars(self))
    quantize(net.eval(), image(), tosa(PROFILES[0]))
    assert quick
    assert all(quick)


def test_a_net_is_quantised_as_with_stocks_search(monkeypatch):
    def constants():
        return quantize(Residual(3).eval(), image(), tosa(PROFILES[0])).code

    searches = noted(monkeypatch, histogram_search, "_kept")
    ours = constants()
    assert searches
    searches.clear()
    monkeypatch.setenv(switch.SWITCH, "0")
    monkeypatch.setattr(HistogramObserver, SEARCH, stock_search())
    assert constants() == ours
    assert not searches
