"""A net that makes an integer of NaN is told from one that does not."""

import pytest
import torch
from lowering import quantize, tosa
from small import Built, Lambda

from tools.fuzz.undefined import undefined

POSITIVE, NEGATIVE = (torch.tensor([0.5, 0.7]),), (torch.tensor([-0.5, 0.7]),)


def exported(rule):
    return torch.export.export(Lambda(rule), POSITIVE).module(check_guards=False)


@pytest.mark.parametrize("tried", [(NEGATIVE,), (POSITIVE, NEGATIVE)])
@pytest.mark.parametrize("rule", [lambda m, x: x.log().to(torch.int32), lambda m, x: (1 / (x > 0)).to(torch.int64)])
def test_a_cast_of_what_is_not_finite(rule, tried):
    assert undefined(exported(rule), tried)
    assert not undefined(exported(rule), (POSITIVE,))


def test_a_quantised_nan_is_undefined_and_an_infinity_a_float_and_a_bool_are_not():
    graph_module = quantize(Lambda(lambda m, x: x.log2()), POSITIVE, tosa("TOSA-1.0+INT"))
    far = (torch.tensor([0.5, -torch.inf]),)
    assert undefined(graph_module, ((torch.tensor([0.5, torch.nan]),),))
    assert not undefined(graph_module, (POSITIVE, far))
    assert not undefined(exported(lambda m, x: (x.log() + 1, x.log().to(torch.bool))), (NEGATIVE,))


def test_buffers_stay_as_they_are():
    net = Built(lambda m, x: m.calls.add_(x).to(torch.int32), calls=torch.zeros(2))

    module = torch.export.export(net, POSITIVE).module(check_guards=False)
    assert not undefined(module, (POSITIVE,))
    assert not dict(module.named_buffers())["calls"].any()
