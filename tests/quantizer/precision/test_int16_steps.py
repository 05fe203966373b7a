"""What is computed in two steps of 16 bits has qparams that no argument saturates, and 8 bits in its first step."""

import pytest
import torch
from graph_changes import annotated
from lowering import HISTOGRAM, WIDE, min_max
from small import Lambda
from stubborn import quantizer_of
from torchao.quantization.pt2e.fake_quantize import FakeQuantize
from torchao.quantization.pt2e.observer import MinMaxObserver
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, QuantizationSpec

from safe_arm._compat.annotations import Q_ANNOTATION_KEY, spec_at
from safe_arm.quantizer.precision.fine_reciprocals import reciprocals
from safe_arm.quantizer.precision.int16_steps import int16_spec, least_argument

ROWS = (torch.randn(1, 16, 32, generator=torch.Generator().manual_seed(0)),)
PROFILE = "TOSA-1.0+INT+int16"


def softmax(m, x):
    return x.softmax(-1)


def steps_of(quantizer):
    """The reciprocal in two steps of an annotated softmax; None if it has one step."""
    model = annotated(Lambda(softmax), quantizer, ROWS)
    return next(reciprocals(model), None)


def test_the_first_step_has_8_bits_and_all_that_corrects_it_16():
    found = steps_of(quantizer_of(profile=PROFILE, config=WIDE))
    places = {
        "argument": (found.argument, found.rough),
        "rough": found.rough,
        "unit": found.unit,
        "correction": found.correction,
        "fine": found.fine,
    }
    dtypes = {name: spec_at(place).dtype for name, place in places.items()}
    assert dtypes == {"argument": torch.int8, "rough": torch.int8} | dict.fromkeys(
        ("unit", "correction", "fine"), torch.int16
    )


@pytest.mark.parametrize("config", [HISTOGRAM, min_max()], ids=["histogram", "min-max"])
def test_what_has_8_bits_is_none_of_16(config):
    found = steps_of(quantizer_of(config=config))
    assert found is None or int16_spec(found) is None


@pytest.mark.parametrize(("observer", "is_stocks"), [(MinMaxObserver, True), (FakeQuantize, False)])
def test_only_an_argument_that_an_observer_of_stock_s_watches_has_two_steps(observer, is_stocks):
    found = steps_of(quantizer_of(profile=PROFILE, config=WIDE))
    spec = QuantizationSpec(torch.int16, observer.with_args())
    for node in (found.argument, found.rough, found.between, found.unit, found.correction, found.fine):
        node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(dict.fromkeys(node.all_input_nodes, spec), spec)
    assert int16_spec(found) is (spec if is_stocks else None)


def test_an_argument_has_room_below_what_calibration_showed_but_ends_where_the_correction_does():
    observer = MinMaxObserver(dtype=torch.int8, qscheme=torch.per_tensor_affine, quant_min=-128, quant_max=127)
    observer(torch.tensor([8.0, 255.0]))
    for parts, room, least in ((64, 16.0, 0.5), (64, 4.0, 2.0), (8, 1e9, 0.125)):
        found, zero_point = least_argument(observer, parts, room)
        assert float(found) == pytest.approx(least, rel=1e-6)
        assert int(zero_point) == 0
