"""Generalised mean pooling and other powers by a constant tensor are tables."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from lowering import PROFILES, min_max, quantize, tosa
from rewriting import Rewriting
from small import Built, image
from spelled import check_one_exact
from torch import nn

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.spellings.spelled_powers import spell_out_powers

SPEC = tosa(PROFILES[0])
POWER = torch.ops.aten.pow.Tensor_Tensor


def calls(model):
    return model.graph.find_nodes(op="call_function", target=POWER)


def pooled(m, x):
    return x.clamp(min=1e-6).pow(m.p).mean((-2, -1)).pow(1 / m.p)


def half_life(m, x):
    return torch.pow(torch.tensor(0.5), x) + x


def net(forward, exponent=3.0):
    return Built(forward, p=nn.Parameter(torch.as_tensor(exponent).view(-1)), q=torch.tensor(2.0))


class TestPowers(Rewriting):
    step = staticmethod(spell_out_powers)
    inputs = image()
    written: ClassVar = {
        "pooling": lambda: net(pooled),
        "exponent for each channel, all alike": lambda: net(
            lambda m, x: x**2 + x.abs() ** m.p.view(-1, 1, 1), [3.0] * 4
        ),
        "buffer": lambda: net(lambda m, x: x**m.q),
        "base": lambda: net(half_life),
    }
    kept: ClassVar = {
        "exponents that differ": lambda: net(lambda m, x: x.abs() ** m.p.view(-1, 1, 1), [2.0, 3.0, 2.0, 2.0]),
        "more exponents than values": lambda: net(lambda m, x: x[:, :1].abs() ** m.p.view(-1, 1, 1), [2.0] * 4),
        "exponent that is computed": lambda: net(lambda m, x: x.abs() ** x.sigmoid()),
        "power of a constant": lambda: net(lambda m, x: x * m.p**m.q),
        "number": lambda: net(lambda m, x: x**3),
        "base that is negative": lambda: net(lambda m, x: (-m.q) ** x.round()),
        "base for each channel": lambda: net(lambda m, x: m.p.view(-1, 1, 1) ** x, [2.0, 3.0, 2.0, 2.0]),
    }

    def case(self, row):
        return row(), self.inputs

    @pytest.mark.parametrize("rule", [pooled, half_life])
    def test_stock_leaves_it_float(self, rule):
        with torch.no_grad():
            quantised = quantize(net(rule), self.inputs, SPEC, quantizer_class=TOSAQuantizer, config=min_max())
        assert calls(quantised)

    @pytest.mark.parametrize("rule", [pooled, half_life])
    def test_ours_is_one_exact_delegate(self, rule):
        quantised = quantize(net(rule), self.inputs, SPEC, config=min_max())
        assert not calls(quantised)
        check_one_exact(quantised, self.inputs, SPEC)

    @pytest.mark.parametrize("how", [{"spec": "TOSA-1.0+INT+FP"}, {"is_qat": True}], ids=["with float", "in training"])
    def test_it_stays_a_power(self, how):
        spec = tosa(how.pop("spec", PROFILES[0]))
        config = get_symmetric_quantization_config(**how)
        model = torch.export.export(net(pooled), self.inputs).module()
        quantizer = SafeTOSAQuantizer(spec).set_global(config)
        assert calls(quantizer.transform_for_annotation(model))
