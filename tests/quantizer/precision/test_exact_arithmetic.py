"""The steps that keep 32 bits are those that the device has cycles for."""

import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from graph_changes import annotated, annotates_no_more, wide
from lowering import HISTOGRAM
from small import Lambda
from stubborn import quantizer_of

from safe_arm import SafeEthosUQuantizer
from safe_arm.quantizer.precision.exact_arithmetic import keep_arithmetic_exact

X = (torch.randn(1, 12, 48, generator=torch.Generator().manual_seed(0)),)


def norm(m, x):
    return torch.nn.functional.layer_norm(x, (48,), torch.linspace(0.5, 1.5, 48), torch.linspace(-1, 1, 48))


@pytest.mark.parametrize(("target", "count"), [("ethos-u55-128", 17), ("ethos-u85-256", 3)])
def test_an_ethos_u85_keeps_a_variance_alone(target, count):
    quantizer = SafeEthosUQuantizer(EthosUCompileSpec(target)).set_global(HISTOGRAM)
    assert len(wide(annotated(Lambda(norm), quantizer, X))) == count


def test_twice_equals_once():
    model = annotated(Lambda(norm), quantizer_of(), X)
    assert len(wide(model)) == 17
    assert annotates_no_more(keep_arithmetic_exact, model)
