"""What is selected at the same places keeps its own domain."""

import torch
from lowering import PROFILES, lower_exactly, quantize, tosa
from ratios import histogram_ratios
from small import Lambda
from stubborn import exported

from safe_arm.quantizer.annotation.integer_views import annotate_integer_views

BOXES = torch.linspace(-1, 1, 96).view(1, 24, 4)
SCORES = torch.linspace(-2, 2, 24).view(1, 24)
INPUTS = (BOXES, SCORES, torch.tensor([[3, 9, 5, 21]], dtype=torch.int32))
KEY = "quantization_annotation"


def selected(m, boxes, scores, places):
    wide, narrow = (boxes * 300).flip(2), scores.sigmoid()
    row = places.view(-1)
    return wide.index_select(1, row).mean() / 300 + narrow.index_select(1, row)


def test_stock_joins_their_domains_and_ours_does_not():
    stock, ours = histogram_ratios(selected, [INPUTS])
    assert stock < 15
    assert ours > 35


def test_the_delegate_is_exact():
    lower_exactly(quantize(Lambda(selected), INPUTS, tosa(PROFILES[0])), tosa(PROFILES[0]), INPUTS)


def test_views_of_integers_alone_are_annotated_and_twice_equals_once():
    model = exported(Lambda(selected), INPUTS)
    for _ in range(2):
        annotate_integer_views(model)
        assert [node.name for node in model.graph.nodes if KEY in node.meta] == ["view"]
        assert not any(node.meta[KEY].input_qspec_map for node in model.graph.nodes if KEY in node.meta)
