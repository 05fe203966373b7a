"""Seed 2: a quantised cat of two constants is folded with the second one read as raw codes."""

import numpy as np
import pytest
import torch
import torch.nn as nn
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.quantizer.arm_quantizer import QuantizationSpec
from executorch.backends.arm.quantizer.quantization_config import QuantizationConfig
from executorch.backends.arm.tosa import TosaSpecification
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import delegates, lower, tosa
from torchao.quantization.pt2e.observer import FixedQParamsObserver
from tosa_flatbuffer import constant_of_shape

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer

pytestmark = pytest.mark.seeds

HEIGHT, WIDTH = 4, 5


class CatConstantModel(nn.Module):
    """A horizontal and a vertical ramp, concatenated: all constants."""

    def forward(self):
        def ramp(n):
            return torch.linspace(-1 + 1 / n, 1 - 1 / n, n, dtype=torch.float32)

        h = ramp(WIDTH).view(1, 1, 1, WIDTH).expand(1, 1, HEIGHT, WIDTH)
        v = ramp(HEIGHT).view(1, 1, HEIGHT, 1).expand(1, 1, HEIGHT, WIDTH)
        return torch.cat((h, v), dim=1)


def snorm_config():
    codes = {"qscheme": torch.per_tensor_symmetric, "quant_min": -127, "quant_max": 127}
    observer = FixedQParamsObserver.with_args(scale=1 / 127, zero_point=0, dtype=torch.qint8, **codes)
    spec = QuantizationSpec(dtype=torch.int8, observer_or_fake_quant_ctr=observer, is_dynamic=False, **codes)
    return QuantizationConfig(spec, spec, None, None)


def folded_constant(quantizer_class, partitioner_class):
    model = CatConstantModel().eval()
    quantizer = quantizer_class(TosaSpecification.create_from_string("TOSA-1.0+INT"))
    quantizer.set_global(snorm_config()).set_io(snorm_config())
    graph_module = quantizer.quantize_with_submodules(torch.export.export(model, ()).module(), [()])
    manager = lower(graph_module, (), partitioner_class(tosa("TOSA-1.0+INT")))
    reference = torch.clamp(torch.round(model() * 127), -127, 127).to(torch.int8).permute(0, 2, 3, 1).numpy()
    return constant_of_shape(delegates(manager)[0], (1, HEIGHT, WIDTH, 2)), reference


def unique_counts(array):
    return [int(np.unique(array[..., channel]).size) for channel in (0, 1)]


def test_stock_folds_the_second_ramp_wrongly():
    folded, reference = folded_constant(TOSAQuantizer, TOSAPartitioner)
    assert unique_counts(reference) == [5, 4]
    assert unique_counts(folded) == [5, 2]
    difference = np.abs(folded.astype(int) - reference.astype(int))
    assert difference.max() == 95
    assert difference.mean() == 31.75


def test_ours_folds_both_ramps_exactly():
    folded, reference = folded_constant(SafeTOSAQuantizer, SafeArmPartitioner)
    assert unique_counts(folded) == [5, 4]
    assert np.abs(folded.astype(int) - reference.astype(int)).max() == 0
