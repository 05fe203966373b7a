"""The domain of an additive mask reaches from where it masks to its maximum."""

import pytest
import torch

from safe_arm.quantizer.mask_observer import MaskObserver


def observer(dtype=torch.int8, qscheme=torch.per_tensor_affine):
    limits = torch.iinfo(dtype)
    return MaskObserver(dtype=dtype, quant_min=limits.min, quant_max=limits.max, qscheme=qscheme, eps=1e-7)


@pytest.mark.parametrize("mask", [[0.0, -1e4], [0.0, torch.finfo(torch.float32).min], [0.0, -torch.inf], [0.0], []])
def test_0_is_the_greatest_code_of_a_mask(mask):
    watched = observer()
    mask = torch.tensor(mask)
    assert watched(mask) is mask
    scale, zero_point = watched.calculate_qparams()
    assert float(scale) == pytest.approx(80 / 255)
    assert int(zero_point) == 127
    assert watched.min_val == watched.max_val == 0


def test_a_bias_widens_the_domain_and_0_has_a_code():
    watched = observer()
    watched(torch.tensor([-5.0, 8.0, -1e4]))
    watched(torch.tensor([-2.0, 1.0]))
    scale, zero_point = watched.calculate_qparams()
    assert float(scale) == pytest.approx(88 / 255)
    assert int(zero_point) == 127 - round(8 * 255 / 88)
    assert (watched.min_val, watched.max_val) == (-5, 8)


def test_a_symmetric_domain_is_centred():
    watched = observer(torch.int16, torch.per_tensor_symmetric)
    watched(torch.tensor([0.0, -1e4]))
    scale, zero_point = watched.calculate_qparams()
    assert float(scale) == pytest.approx(80 / 32767)
    assert int(zero_point) == 0
