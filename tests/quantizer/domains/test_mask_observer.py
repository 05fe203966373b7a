"""The domain of an additive mask reaches from where it masks to its maximum."""

import pytest
import torch

from safe_arm.quantizer.domains.mask_observer import MaskObserver

AFFINE, SYMMETRIC = torch.per_tensor_affine, torch.per_tensor_symmetric
#: By name: masks, the dtype and scheme, the scale and zero point, and the bounds that were observed.
MASKS = {
    "low": ([[0.0, -1e4]], torch.int8, AFFINE, 80 / 255, 127, (0, 0)),
    "lowest": ([[0.0, torch.finfo(torch.float32).min]], torch.int8, AFFINE, 80 / 255, 127, (0, 0)),
    "infinite": ([[0.0, -torch.inf]], torch.int8, AFFINE, 80 / 255, 127, (0, 0)),
    "nothing masked": ([[0.0]], torch.int8, AFFINE, 80 / 255, 127, (0, 0)),
    "empty": ([[]], torch.int8, AFFINE, 80 / 255, 127, (0, 0)),
    "a bias": ([[-5.0, 8.0, -1e4], [-2.0, 1.0]], torch.int8, AFFINE, 88 / 255, 127 - round(8 * 255 / 88), (-5, 8)),
    "symmetric": ([[0.0, -1e4]], torch.int16, SYMMETRIC, 80 / 32767, 0, (0, 0)),
}


@pytest.mark.parametrize(("masks", "dtype", "qscheme", "step", "zero", "bounds"), MASKS.values(), ids=MASKS)
def test_0_has_a_code_and_is_the_greatest_of_a_mask_without_a_bias(masks, dtype, qscheme, step, zero, bounds):
    limits = torch.iinfo(dtype)
    watched = MaskObserver(dtype=dtype, quant_min=limits.min, quant_max=limits.max, qscheme=qscheme, eps=1e-7)
    for mask in map(torch.tensor, masks):
        assert watched(mask) is mask
    scale, zero_point = watched.calculate_qparams()
    assert float(scale) == pytest.approx(step)
    assert int(zero_point) == zero
    assert (watched.min_val, watched.max_val) == bounds
