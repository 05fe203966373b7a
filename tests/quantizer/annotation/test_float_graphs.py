"""What is prepared already is refused, and what is quantised already is warned of."""

import pytest
import torch
from graph_changes import at_once, step_by_step
from small import Lambda, image
from spying import doubts
from stubborn import calibrated, exported, quantizer_of
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e, prepare_qat_pt2e

from safe_arm.core.errors import UsageError
from safe_arm.quantizer.annotation.float_graphs import check_has_values

NET = Lambda(lambda m, x: torch.relu(m.conv(x)))


@pytest.mark.parametrize("step", [prepare_pt2e, prepare_qat_pt2e])
def test_a_graph_that_is_prepared_already_is_refused(step):
    prepared = prepare_pt2e(exported(NET, image()), quantizer_of())
    with pytest.raises(UsageError, match="is prepared already"):
        step(prepared, quantizer_of())


def test_a_graph_that_is_quantised_already_is_warned_of():
    samples = [image(seed) for seed in range(2)]
    quantised = calibrated(exported(NET, samples[0]), quantizer_of(), samples)
    again, told = doubts(lambda: prepare_pt2e(exported(quantised, samples[0]), quantizer_of()))
    assert again is not None
    (message,) = told
    assert "is quantised already" in message


def test_one_export_may_be_prepared_twice():
    graph_module = exported(NET, image())
    for _ in range(2):
        _, told = doubts(lambda: prepare_pt2e(graph_module, quantizer_of()))
        assert told == []


def of_a_gradient():
    """Export a gradient; torch makes a constant without values of its input."""
    net = Lambda(lambda m, x: torch.func.grad(lambda each: (each**3).sum())(x))
    return exported(net, image())


@pytest.mark.parametrize("quantise", [step_by_step, at_once])
def test_a_constant_without_values_is_refused(quantise):
    with pytest.raises(UsageError, match="the constant 'lifted_tensor_0' of the graph module has no values"):
        quantise(of_a_gradient(), [image()])


def test_a_constant_with_values_is_not():
    model = exported(Lambda(lambda m, x: x + torch.tensor([1.0, 2.0] * 4)), image())
    check_has_values(model)
    check_has_values(model)
