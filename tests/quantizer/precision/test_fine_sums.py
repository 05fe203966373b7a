"""A softmax has the bits of two steps, whether a row is sure or not, and the delegate computes it exactly."""

import pytest
import torch
from graph_changes import annotated, annotates_no_more, changes
from lowering import HISTOGRAM, stock_codes_apart, tosa
from ratios import borders_and_ours, exactly_on, for_ethos_u, ours_exactly, quantised, ratio, ratios
from small import Lambda
from stubborn import quantizer_of

from safe_arm._compat.annotations import spec_at
from safe_arm.quantizer.precision.fine_reciprocals import keep_reciprocals_fine, refine_reciprocals
from safe_arm.quantizer.precision.fine_sums import LARGEST_CORRECTION, LARGEST_UNIT, ExponentialSumObserver

TERMS = 160


def softmax(m, x):
    return x.softmax(-1)


def place(m, x):
    """The place of the peak of a heat map."""
    return x.softmax(-1) @ torch.linspace(1, 32, TERMS).unsqueeze(-1)


def rows(seed, sharpest=12.0, flattest=0.5):
    """Rows of scores, as of heat maps: some have one peak, others hardly any."""
    draw = torch.Generator().manual_seed(seed)
    sharpness = torch.linspace(flattest, sharpest, 12).view(1, 12, 1)
    return (torch.randn(1, 12, TERMS, generator=draw) * sharpness,)


ROWS = [rows(seed) for seed in range(8)]


def reciprocals(graph_module):
    return len(graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.reciprocal.default))


def test_stock_misplaces_what_it_finds_and_ours_does_not():
    borders, stock, ours = ratios(place, ROWS)
    assert stock < borders - 4
    assert ours > borders - 1


def test_rows_less_sure_than_those_calibrated_are_placed_as_well():
    graph_module = quantised(place, quantizer_of(config=HISTOGRAM), ROWS)
    flatter = [rows(seed, flattest=0.3) for seed in range(100, 104)]
    assert ratio(graph_module, place, flatter) > 29


def test_the_one_delegate_is_exact(profile):
    assert reciprocals(ours_exactly(softmax, ROWS, profile)) == 2


def test_an_ethos_u55_computes_it_exactly_and_an_ethos_u85_keeps_its_operators():
    assert reciprocals(exactly_on("ethos-u55-128", softmax, ROWS)) == 2
    assert reciprocals(quantised(softmax, for_ethos_u("ethos-u85-256"), ROWS)) == 1


#: Few scores, of which none is sure.
SHORT = [(row[..., :8] / 12,) for (row,) in ROWS]


def test_a_short_one_is_within_a_decibel_of_its_borders():
    borders, stock, ours = ratios(softmax, SHORT)
    assert stock < borders - 2
    assert ours > borders - 1


@pytest.mark.parametrize("terms", [2, 8])
def test_a_short_one_is_exact(terms):
    ours_exactly(softmax, [(row[..., :terms],) for (row,) in SHORT])


def alike(seed, terms=8):
    """Rows of few scores that hardly differ from row to row, as those of an untrained classifier."""
    bias = 0.12 * torch.randn(terms, generator=torch.Generator().manual_seed(0))
    return (bias + 0.003 * torch.randn(1, 12, terms, generator=torch.Generator().manual_seed(seed)),)


def test_short_rows_that_are_alike_are_corrected_in_32_bits(profile):
    """A correction of 8 bits is wrong by the same share in all of them: 3 dB below stock."""
    samples = [alike(seed) for seed in range(1, 9)]
    borders, stock, ours = ratios(softmax, samples)
    assert ours > stock + 0.5
    assert ours > borders - 3.5
    graph_module = ours_exactly(softmax, samples, profile)
    assert reciprocals(graph_module) == 1
    assert stock_codes_apart(graph_module, samples[0], tosa(profile), *samples) == 0


@pytest.mark.parametrize("terms", [2, 8, 32])
def test_short_rows_of_all_kinds_are_near_their_borders(terms):
    samples = [(row[..., :terms],) for (row,) in ROWS]
    borders, ours = borders_and_ours(softmax, samples)
    assert ours > borders - 1


def test_longer_rows_that_are_alike_have_the_codes_that_their_corrections_need():
    """A correction is within 13 % of 1 then: in a domain that ends at 1.5 they are 3 dB below stock."""
    samples = [alike(seed, 60) for seed in range(1, 9)]
    _, stock, ours = ratios(softmax, samples)
    assert ours > stock - 0.5
    ours_exactly(softmax, samples)


@pytest.mark.parametrize(("terms", "number"), [(32, 1), (33, 2)])
def test_longer_rows_need_a_table(terms, number):
    assert reciprocals(quantised(softmax, quantizer_of(), [alike(1, terms)])) == number


def short(m, x):
    return x[..., :127].softmax(-1)


def test_a_short_one_keeps_its_operators_on_an_ethos_u_unless_accuracy_is_preferred():
    for target in ("ethos-u55-128", "ethos-u85-256"):
        quantizer = for_ethos_u(target)
        assert reciprocals(quantised(short, quantizer, ROWS[:1])) == 1
        quantizer.prefers_accuracy = True
        assert reciprocals(quantised(short, quantizer, ROWS[:1])) == 2


def of_any_size(m, x):
    """Exponentials that are larger than 1, and their sum than the number of terms."""
    shares = (1 + x / 8).exp()
    return shares / shares.sum(-1, keepdim=True)


NEAR_MISSES = {"masked": lambda m, x: x.masked_fill(x > 20, -torch.inf).softmax(-1), "of any size": of_any_size}


@pytest.mark.parametrize("rule", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_others_keep_their_operators(rule):
    assert reciprocals(quantised(rule, quantizer_of(), ROWS[:1])) == 1


def test_a_sum_of_exponentials_of_any_size_has_its_domain():
    borders, ours = borders_and_ours(of_any_size, ROWS)
    assert ours > borders - 1


def observer_of_sums(terms):
    how = {"dtype": torch.int8, "quant_min": -128, "quant_max": 127, "qscheme": torch.per_tensor_affine}
    return ExponentialSumObserver(terms, **how)


def test_the_domain_of_a_sum_ends_at_its_number_of_terms():
    highest = []
    for largest in (30.0, 100.0):
        observer = observer_of_sums(TERMS)
        observer(torch.tensor([1.0, largest]))
        scale, zero_point = observer.calculate_qparams()
        assert int(zero_point) == -128
        highest.append(float(scale) * 255)
    assert highest == pytest.approx([60, TERMS])


def test_the_units_of_a_sum_that_is_rounded_by_its_step_have_room_for_it():
    """A sum up to 400 has a step of 1.57, more than the least sum."""
    model = annotated(Lambda(softmax), quantizer_of(), (torch.zeros(1, 2, 400),))
    _, correction = model.graph.find_nodes(op="call_function", target=torch.ops.aten.reciprocal.default)
    observer = observer_of_sums(400)
    observer(torch.tensor([1.0, 400.0]))
    largest = []
    for value in (correction.args[0], correction):
        scale, zero_point = spec_at(value).derive_qparams_fn([observer])
        assert int(zero_point) == -128
        largest.append(float(scale) * 255)
    assert largest == pytest.approx([LARGEST_UNIT * 1.6, LARGEST_CORRECTION / 0.4])


def test_twice_equals_once():
    model = annotated(Lambda(softmax), quantizer_of(), ROWS[0])
    assert not changes(refine_reciprocals, model)
    assert annotates_no_more(keep_reciprocals_fine, model)
