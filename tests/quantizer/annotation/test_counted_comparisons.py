"""A comparison that is counted for an index stays float, and what it compares; so do thresholds of sorted values."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated
from lowering import PROFILES, lower_in_part, min_max, quantize, tosa
from small import Lambda
from stubborn import quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm._compat.annotations import Q_ANNOTATION_KEY
from safe_arm.core.island import call_functions, op_name
from safe_arm.quantizer.annotation.counted_comparisons import chosen_of_sorted, counted_for_indices

SCORES = (torch.randn(4, 16, generator=torch.Generator().manual_seed(0)) * 4,)
PLACES = torch.arange(1.0, 17)


def sparsemax(m, x):
    ordered, _ = torch.sort(x * 1.5, -1, descending=True)
    sums = ordered.cumsum(-1)
    count = (1 + PLACES * ordered > sums).sum(-1, keepdim=True)
    return (x * 1.5 - (sums.gather(-1, count - 1) - 1) / count.to(x.dtype)).clamp(min=0)


def masked_sparsemax(m, x):
    """The same without an index: the values of the support are summed through a mask."""
    ordered, _ = torch.sort(x * 1.5, -1, descending=True)
    chosen = (1 + PLACES * ordered > ordered.cumsum(-1)).to(x.dtype)
    return (x * 1.5 - ((chosen * ordered).sum(-1, True) - 1) / chosen.sum(-1, True)).clamp(min=0)


def last_above(m, x):
    """The value at the last place of those that are large, as a selection along a dimension."""
    values = x.abs().sort(-1)[0]
    count = (values * 0.5 > 1.0).sum(-1)
    return values.index_select(1, (16 - count).clamp(max=15))


RULES = {"sparsemax": sparsemax, "masked sparsemax": masked_sparsemax, "the least of the large": last_above}
NEAR = {
    "a count that is no index": lambda m, x: x * (x * 2 > 1.0).sum(-1, keepdim=True).to(x.dtype),
    "a sum of sorted values that is compared with none": lambda m, x: x - x.sort(-1)[0].cumsum(-1) * 0.5,
    "a sum of sorted values that is compared with others": lambda m, x: x * (x.sort(-1)[0].cumsum(-1) > x * 2),
    "a choice between two places": lambda m, x: x.gather(-1, torch.where(x * 2 > 1.0, 3, 4)),
    "the place of a maximum": lambda m, x: x.gather(-1, (x * 2).argmax(-1, keepdim=True)),
}


def test_stock_makes_a_graph_that_raises():
    graph_module = quantize(
        Lambda(sparsemax), SCORES, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer, config=min_max()
    )
    with pytest.raises(RuntimeError, match="index -1 is out of bounds"):
        graph_module(*SCORES)


@pytest.mark.filterwarnings("ignore:.*stay float")
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_ours_computes_the_net_and_its_delegates_are_exact(rule, profile):
    graph_module = quantize(Lambda(rule), SCORES, tosa(profile), config=min_max())
    # The scores are rounded twice, by half a step each, in front of the product and behind it.
    step = float(SCORES[0].max() - SCORES[0].min()) * 1.5 / 255
    torch.testing.assert_close(graph_module(*SCORES), rule(None, *SCORES), rtol=0, atol=1.25 * step)
    lower_in_part(graph_module, tosa(profile), SCORES)


@pytest.mark.filterwarnings("ignore:.*stay float")
def test_no_more_is_left_float_than_what_is_compared_and_twice_equals_once():
    quantizer = quantizer_of(SafeTOSAQuantizer)
    model = annotated(Lambda(sparsemax), quantizer, SCORES)
    # The scores, twice, and their difference from the threshold.
    quantised = [op_name(node) for node in call_functions(model) if Q_ANNOTATION_KEY in node.meta]
    assert quantised == ["aten::mul", "aten::mul", "aten::sub", "aten::clamp"]
    assert counted_for_indices(model) | chosen_of_sorted(model) == {}


@pytest.mark.parametrize("rule", NEAR.values(), ids=NEAR)
def test_the_near_miss_is_quantised(rule):
    quantizer = quantizer_of(SafeTOSAQuantizer)
    model = annotated(Lambda(rule), quantizer, SCORES)
    assert not quantizer.left_float
    assert counted_for_indices(model) | chosen_of_sorted(model) == {}
