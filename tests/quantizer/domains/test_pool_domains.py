"""An average pool has a domain of its own, and the delegate computes it exactly."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated, changes
from lowering import WIDE, targets, tosa
from proving import quantized
from ratios import exactly_on, for_ethos_u, histogram_ratios, quantised, ratio, ratio_of_rounded_borders, ratios
from small import Lambda
from spelled import check_one_exact
from stubborn import converted, exported, quantizer_of

from safe_arm.quantizer.domains.pool_domains import convolve_pools

IMAGES = [(torch.randn(1, 4, 12, 12, generator=torch.Generator().manual_seed(seed)),) for seed in range(4)]
ETHOS_U = "ethos-u85-256"
POOLS = {
    "windows": lambda m, x: F.avg_pool2d(x, 3),
    "windows rounded up that fit": lambda m, x: F.avg_pool2d(x, 3, 3, ceil_mode=True),
    "overlapping windows with a border": lambda m, x: F.avg_pool2d(x, 3, 2, 1),
    "all of the image": lambda m, x: F.adaptive_avg_pool2d(x, 1),
    "windows of several sizes": lambda m, x: F.adaptive_avg_pool2d(x, (1, 5)),
    "between a convolution and a relu": lambda m, x: torch.relu(F.avg_pool2d(m.conv(x), 3)),
}
KEPT = {
    "the border is not counted": lambda m, x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "the last window reaches over the edge": lambda m, x: F.avg_pool2d(x, 5, 5, ceil_mode=True),
}


@pytest.mark.parametrize("pool", list(POOLS.values())[:5], ids=list(POOLS)[:5])
def test_stock_loses_five_decibels_in_the_domain_of_the_input_and_ours_none(pool):
    borders, stock, ours = ratios(pool, IMAGES)
    assert stock < borders - 5
    assert ours > borders - 0.5


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_the_one_delegate_is_exact(pool, profile):
    graph_module = quantized(Lambda(pool), IMAGES[0], profile)
    check_one_exact(graph_module, IMAGES[0], tosa(profile))
    assert "avg_pool2d" not in targets(graph_module)


def test_ethos_u_averages_an_image_in_two_steps():
    """Each weight of one step would be read for one product; both together cost no more than a pool."""
    pool = POOLS["all of the image"]
    graph_module = exactly_on(ETHOS_U, pool, IMAGES)
    assert targets(graph_module).count("conv2d") == 2
    assert ratio(graph_module, pool, IMAGES) > ratio_of_rounded_borders(pool, IMAGES) - 2.5


@pytest.mark.parametrize(("side", "name"), [(3, "conv2d"), (4, "avg_pool2d")])
def test_ethos_u_keeps_large_windows_as_pools(side, name):
    assert name in targets(quantised(lambda m, x: F.avg_pool2d(x, side), for_ethos_u(ETHOS_U), IMAGES))


def long_window(m, x):
    return F.avg_pool2d(x.reshape(1, 4, 144, 1), (75, 1), (15, 1))


def test_a_window_longer_than_an_ethos_u_takes_is_convolved_elsewhere(profile):
    stock, ours = histogram_ratios(long_window, IMAGES)
    assert stock < ours - 5
    graph_module = quantized(Lambda(long_window), IMAGES[0], profile)
    check_one_exact(graph_module, IMAGES[0], tosa(profile))
    assert "avg_pool2d" not in targets(graph_module)
    assert "avg_pool2d" in targets(quantised(long_window, for_ethos_u(ETHOS_U), IMAGES))


@pytest.mark.parametrize(("side", "name"), [(64, "conv2d"), (65, "avg_pool2d")])
def test_an_ethos_u_averages_sides_up_to_64_in_two_steps(side, name):
    image = [(torch.randn(1, 2, side, 2),)]
    assert name in targets(quantised(lambda m, x: F.avg_pool2d(x, (side, 2)), for_ethos_u(ETHOS_U), image))


@pytest.mark.parametrize(("side", "name"), [(64, "conv2d"), (65, "avg_pool2d")])
def test_weights_are_stored_for_windows_up_to_64_x_64(side, name):
    image = [(torch.randn(1, 2, side, 64),)]
    assert name in targets(quantised(lambda m, x: F.avg_pool2d(x, (side, 64)), quantizer_of(), image))


@pytest.mark.parametrize("pool", KEPT.values(), ids=KEPT)
def test_a_window_of_changing_size_stays_a_pool(pool):
    ours = converted(Lambda(pool), quantizer_of(), IMAGES[0])
    stock = converted(Lambda(pool), quantizer_of(TOSAQuantizer), IMAGES[0])
    assert str(ours.graph) == str(stock.graph)


def test_a_pool_that_is_not_quantised_or_of_16_bits_stays_one():
    model = exported(Lambda(POOLS["windows"]), IMAGES[0])
    convolve_pools(model)
    quantizer = quantizer_of(profile="TOSA-1.0+INT+int16", config=WIDE)
    for each in (model, quantised(POOLS["windows"], quantizer, IMAGES)):
        assert "avg_pool2d" in targets(each)


def test_twice_equals_once():
    model = annotated(Lambda(POOLS["windows"]), quantizer_of(), IMAGES[0])
    assert "conv2d" in targets(model)
    assert not changes(convolve_pools, model)
