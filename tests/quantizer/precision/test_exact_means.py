"""A mean is exact where it is subtracted from its values, and the delegate computes it exactly."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.quantizer.arm_quantizer import get_uint8_io_quantization_config
from graph_changes import annotated
from lowering import PROFILES, lower_exactly, min_max, tosa
from ratios import ours_exactly, quantised
from small import Lambda, Q, together
from stubborn import quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.precision.exact_means import means_that_fit


def centred(m, x):
    """The variance of rows, which a mean in 8 bits makes too large where all values are nearly alike."""
    apart = x - x.mean(-1, keepdim=True)
    return apart * (apart * apart).sum(-1, keepdim=True)


KEPT = {
    "a mean that is an output": lambda m, x: (centred(m, x), x.mean(-1, keepdim=True)),
    "a mean of other values": lambda m, x: x - (x + 1).mean(-1, keepdim=True),
    "a sum": lambda m, x: x - x.sum(-1, keepdim=True),
}


def rows(width, seed=0):
    """Whole numbers that 8 bits do not round, about a mean of their own in each row; the last rows are constant."""
    generator = torch.Generator().manual_seed(seed)
    centre = torch.randint(-90, 90, (1, 16, 1), generator=generator)
    x = (centre + torch.randint(-30, 30, (1, 16, width), generator=generator)).float()
    x[0, 12:] = centre[0, 12:]
    x[0, 0, 0], x[0, 0, 1] = -128, 127
    return (x,)


def apart(quantizer_class, width):
    """How many steps of the values the differences from their mean are off, at most."""
    (x,) = rows(width)
    graph_module = quantised(centred, quantizer_of(quantizer_class, config=min_max()), [(x,)])
    wanted = x - x.mean(-1, keepdim=True)
    given = {}

    class Kept(torch.fx.Interpreter):
        def run_node(self, n):
            given[n] = super().run_node(n)
            return given[n]

    Kept(graph_module).run(x)
    worst = 0.0
    for node in graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.sub.Tensor):
        worst = max(worst, float((given[node] - wanted).abs().max()))
    return worst


@pytest.mark.parametrize("width", [48, 300, 768])
def test_stock_rounds_the_mean_and_ours_does_not(width):
    # Ours are in whole parts of a step, of which there are 16, 10 and 6.
    assert apart(SafeTOSAQuantizer, width) < 0.18
    assert apart(TOSAQuantizer, width) > 0.29


def test_values_that_are_alike_do_not_differ_from_their_mean():
    (x,) = rows(768)
    net = quantised(centred, quantizer_of(config=min_max()), [(x,)])
    step = [node.args[1] for node in net.graph.find_nodes(op="call_function", target=Q)][-1]
    assert float(net(x)[0, 12:].abs().max()) < step / 2


def test_the_one_delegate_is_exact(profile):
    """The mean of 48 whole numbers is in the middle of two eighths of a step in one row of six."""
    ours_exactly(centred, [rows(48)], profile)


def test_near_misses_are_no_such_means():
    model = annotated(Lambda(together(KEPT)), quantizer_of(), rows(48))
    assert not any(" sub" in str(node) for node in means_that_fit(model))


def test_twice_equals_once():
    model = annotated(Lambda(centred), quantizer_of(), rows(48))
    assert means_that_fit(model) == {}


def test_a_norm_of_an_unsigned_input_is_exact():
    """TOSA widens no uint8 to 32 bits: its sums are those of int8 that it is requantised to."""
    sample = (torch.rand(1, 6, 8, generator=torch.Generator().manual_seed(0)) * 4,)
    quantizer = quantizer_of()
    quantizer.set_io(get_uint8_io_quantization_config())
    graph_module = quantised(lambda m, x: F.layer_norm(x, [8]), quantizer, [sample])
    lower_exactly(graph_module, tosa(PROFILES[0]), sample)
