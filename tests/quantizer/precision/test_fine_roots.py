"""The inverse root of a sum of squares has the bits of two steps, and the delegate computes it exactly."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from graph_changes import annotated, annotates_no_more, changes
from lowering import PROFILES, lower_exactly, quantize, targets, tosa
from ratios import ours_exactly, ratios
from rewriting import Rewriting
from small import Lambda
from stubborn import check_trained, exported, quantizer_of

from safe_arm.quantizer.precision.fine_roots import keep_roots_fine, refine_root

RSQRT = torch.ops.aten.rsqrt.default


def unit(m, x):
    return F.normalize(x, dim=1)


def image(seed, channels=3):
    """Pixels of a few channels, a direction each; one pixel has none."""
    pixels = torch.randn(1, channels, 8, 8, generator=torch.Generator().manual_seed(seed))
    pixels[:, :, 0, 0] = 0
    return (pixels,)


SAMPLES = [image(seed) for seed in range(8)]


def refine_roots(model):
    for root in model.graph.find_nodes(op="call_function", target=RSQRT)[:1]:
        refine_root(root)
    model.recompile()


class TestRoots(Rewriting):
    step = staticmethod(refine_roots)
    inputs = (image(0)[0].abs() + 0.1,)
    also = ((torch.full((1, 3, 8, 8), 1e-12),), (torch.full((1, 3, 8, 8), 1e12),))
    written: ClassVar = {
        "a factor for each row": lambda m, x: x * x.sum(-1, True).rsqrt(),
        "two products": lambda m, x: (x * x.sum(-1, True).rsqrt(), x.sum(-1, True).rsqrt() * (x + 1)),
    }
    kept: ClassVar = {
        "a factor for each value": lambda m, x: x * x.rsqrt(),
        "a root that is an output": lambda m, x: x.sum(-1, True).rsqrt(),
        "a root that is added": lambda m, x: x + x.sum(-1, True).rsqrt(),
    }

    def test_the_float_graph_computes_the_net_and_twice_equals_once(self, written):
        net, example = self.case(written)
        for inputs in (example, *self.also):
            model = exported(net, inputs)
            wanted = model(*inputs)
            assert changes(self.step, model)
            torch.testing.assert_close(model(*inputs), wanted)
            assert targets(model).count("rsqrt") == targets(exported(net, inputs)).count("rsqrt") + 1


def test_stock_loses_directions_and_ours_does_not():
    borders, stock, ours = ratios(unit, [(pixels[..., 1:],) for (pixels,) in SAMPLES])
    assert stock < borders - 7
    assert ours > borders - 0.5


@pytest.mark.parametrize("channels", [2, 4, 96])
def test_the_one_delegate_is_exact(channels, profile):
    graph_module = ours_exactly(unit, [image(seed, channels) for seed in range(2)], profile)
    assert targets(graph_module).count("rsqrt") == 2


def test_it_is_exact_for_inputs_that_were_not_calibrated():
    graph_module = quantize(Lambda(unit), image(0), tosa(PROFILES[0]))
    others = [(image(1)[0] * gain,) for gain in (0.01, 0.1, 4.0)]
    lower_exactly(graph_module, tosa(PROFILES[0]), image(0), *others)


def test_twice_equals_once():
    model = annotated(Lambda(unit), quantizer_of(), image(0))
    assert targets(model).count("rsqrt") == 2
    assert annotates_no_more(keep_roots_fine, model)


def test_what_is_normed_is_trained():
    gains = torch.tensor([0.5, 1.0, 2.0]).view(1, 3, 1, 1)
    check_trained(
        lambda m, x: F.normalize(x * m.parameter, dim=1)[:, 0], image(0)[0][..., 1:], gains, rtol=0.05, atol=0.05
    )
