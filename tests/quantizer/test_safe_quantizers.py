"""The drop-in quantisers have every setter of the stock ones and run the seeds' scripts."""

import inspect

import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import EthosUQuantizer, TOSAQuantizer, VgfQuantizer
from executorch.backends.arm.vgf import VgfCompileSpec
from graph_changes import quantised_whole
from lowering import HISTOGRAM, PROFILES, lower_exactly, min_max, tosa
from small import Built, Lambda, image
from stubborn import quantizer_of

from safe_arm import SafeEthosUQuantizer, SafeTOSAQuantizer, SafeVgfQuantizer

PAIRS = {
    "TOSA": (SafeTOSAQuantizer, TOSAQuantizer, lambda: tosa(PROFILES[0])),
    "VGF": (SafeVgfQuantizer, VgfQuantizer, lambda: VgfCompileSpec("TOSA-1.0+INT+FP")),
    "Ethos-U": (SafeEthosUQuantizer, EthosUQuantizer, lambda: EthosUCompileSpec(target="ethos-u55-128")),
}


@pytest.mark.parametrize("name", PAIRS)
def test_drop_in(name):
    ours, stock, make = PAIRS[name]
    quantizer = ours(make())
    assert isinstance(quantizer, stock)
    public = {n for n, _ in inspect.getmembers(stock) if not n.startswith("_")}
    assert public <= {n for n, _ in inspect.getmembers(ours)}
    assert "quantize_with_submodules" in dir(quantizer)
    assert inspect.signature(ours) == inspect.signature(stock)


@pytest.mark.parametrize("name", PAIRS)
def test_setters_do_what_stock_s_do(name):
    ours, stock, make = PAIRS[name]
    outputs = []
    for quantizer_class in (ours, stock):
        net, inputs = Lambda(lambda m, x: torch.sigmoid(m.conv_b(m.conv(x)))), image()
        quantizer, config = quantizer_class(make()), min_max()
        quantizer.set_global(config)
        quantizer.set_io(config)
        quantizer.set_module_type(torch.nn.Sigmoid, None)
        quantizer.set_module_name("conv_b", config)
        graph_module = quantised_whole(quantizer, net, [inputs])
        outputs.append((graph_module.code, graph_module(*inputs)))
    assert outputs[0][0] == outputs[1][0]
    assert torch.equal(outputs[0][1], outputs[1][1])


@pytest.mark.parametrize("is_qat", [False, True])
def test_quantization_aware_training_graphs_lower_exactly(is_qat):
    net, inputs = Lambda(lambda m, x: torch.cat((torch.relu(m.conv(x)), x), 1)), image()
    quantizer = quantizer_of(is_qat=is_qat, config=HISTOGRAM)
    graph_module = quantised_whole(quantizer, net.train(is_qat), [inputs], is_qat)
    lower_exactly(graph_module, tosa(PROFILES[0]), inputs, image(1, 2.0), non_fuseable="propagate")


def test_a_cond_over_layers_is_quantised_with_gradients_on():
    """Stock's calibration is traced for a gradient, and dies of its observers (T10)."""
    samples = [(image()[0] + 1,), (image()[0] - 1,)]
    torch.manual_seed(0)
    one, other = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.Conv2d(4, 4, 1)
    net = Built(lambda m, x: torch.cond(torch.sum(x) > 0, m.one, m.other, (x,)), one=one, other=other).eval()

    def quantised(quantizer_class):
        quantizer = quantizer_of(quantizer_class, config=HISTOGRAM)
        return quantised_whole(quantizer, net, samples)

    with pytest.raises(Exception, match="data-dependent"):
        quantised(TOSAQuantizer)
    with torch.no_grad():
        stock = quantised(TOSAQuantizer)
    ours = quantised(SafeTOSAQuantizer)
    for sample in samples:
        expected = net(*sample)
        assert (ours(*sample) - expected).abs().max() < (stock(*sample) - expected).abs().max()
