"""A negated value has the mirrored domain."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated, annotates_no_more
from lowering import HISTOGRAM, PROFILES, WIDE, lower_exactly, quantize, tosa
from small import Lambda
from stubborn import quantizer_of

from safe_arm._compat.annotations import Q_ANNOTATION_KEY
from safe_arm.core.island import QParams
from safe_arm.quantizer.domains.mirrored_domains import mirror_domains

INPUTS = (torch.randn(8, 96, generator=torch.Generator().manual_seed(0)).exp(),)
NET = Lambda(lambda m, x: -(x * 1.0))


def domains(quantised):
    (negative,) = quantised.graph.find_nodes(op="call_function", target=torch.ops.aten.neg.default)
    (result,) = negative.users
    return QParams.of(negative.args[0]), QParams.of(result)


def test_stock_rounds_a_negative_again():
    quantised = quantize(NET, INPUTS, tosa(PROFILES[0]), config=HISTOGRAM, quantizer_class=TOSAQuantizer)
    before, after = domains(quantised)
    assert (after.scale, after.zero_point) != (before.scale, -1 - before.zero_point)


def check_mirrored(before, after):
    assert after.scale == before.scale
    assert after.zero_point == -1 - before.zero_point


def test_ours_mirrors_each_code(profile):
    quantised = quantize(NET, INPUTS, tosa(profile), config=HISTOGRAM)
    check_mirrored(*domains(quantised))
    lower_exactly(quantised, tosa(profile), INPUTS)


def test_a_symmetric_domain_is_its_own_mirror_and_twice_a_negative_is_the_value():
    before, after = domains(quantize(NET, INPUTS, tosa("TOSA-1.0+INT+int16"), config=WIDE))
    assert before == after
    quantised = quantize(Lambda(lambda m, x: (x * 1.0).neg().neg()), INPUTS, tosa(PROFILES[0]))
    negatives = quantised.graph.find_nodes(op="call_function", target=torch.ops.aten.neg.default)
    check_mirrored(*(QParams.of(next(iter(node.users))) for node in negatives))


def _where(negative, others):
    return torch.where(others > 0, negative, others)


def _cat_of_moved(negative, others):
    return torch.cat([negative.flip(1)[:, :50], others], 1)


def _written_into(negative, others):
    return torch.slice_scatter(negative, others[:, :9], 1, 0, 9)


JOINS = {
    "where": _where,
    "stack": lambda negative, others: torch.stack([negative, others]),
    "cat of moved": _cat_of_moved,
    "cat with a negative of another": lambda negative, others: torch.cat([negative, -others]),
    "slice_scatter": _written_into,
    "pad": lambda negative, others: F.pad(negative, (1, 1), value=-40.0),
    "distance": lambda negative, others: torch.cat([negative - negative.amax(1, True), others]),
}


@pytest.mark.parametrize("join", JOINS.values(), ids=JOINS)
def test_a_negative_that_is_joined_with_others_does_not_cut_them_off(join, profile):
    net = Lambda(lambda m, x: join(-(x * 1.0), x * 1.0 + 30))
    quantised = quantize(net, INPUTS, tosa(profile))
    (largest,) = {QParams.of(node) for node in quantised.graph.output_node().all_input_nodes}
    apart = (quantised(*INPUTS) - net(*INPUTS)).abs().max()
    # Two roundings: to the domain of the values, and to that of what is joined.
    assert apart <= 1.01 * largest.scale
    lower_exactly(quantised, tosa(profile), INPUTS)


def test_a_negative_that_is_only_moved_is_mirrored():
    net = Lambda(lambda m, x: (-(x * 1.0)).reshape(2, 4, 96).relu())
    check_mirrored(*domains(quantize(net, INPUTS, tosa(PROFILES[0]))))


@pytest.mark.parametrize("annotation", ["none", "of its input alone"])
def test_a_negative_whose_result_stays_float_gets_no_domain(annotation):
    model = annotated(NET, quantizer_of(TOSAQuantizer), INPUTS)
    (negative,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.neg.default)
    if annotation == "none":
        del negative.meta[Q_ANNOTATION_KEY]
    else:
        negative.meta[Q_ANNOTATION_KEY].output_qspec = None
    assert annotates_no_more(mirror_domains, model)
