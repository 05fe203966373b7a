"""Settings return the quantiser that they are of, so that those chained behind them are ours too."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from lowering import PROFILES, min_max, tosa
from small import Lambda, image
from stubborn import calibrated, exported

from safe_arm import SafeTOSAQuantizer, UsageError
from safe_arm.core.island import call_functions, is_marked_quantized
from safe_arm.quantizer.graphs.named_operators import ExportedNameFinder

RELU = torch.ops.aten.relu.default
SETTINGS = {
    "set_global": lambda q: q.set_global(min_max()),
    "set_io": lambda q: q.set_io(min_max()),
    "set_module_type": lambda q: q.set_module_type(torch.nn.Conv2d, None),
    "set_module_name": lambda q: q.set_module_name("conv", None),
    "set_node_name": lambda q: q.set_node_name("relu", None),
    "set_node_target": lambda q: q.set_node_target(RELU, None),
    "set_node_finder": lambda q: q.set_node_finder(None, ExportedNameFinder(["relu"])),
    "add_quantizer": lambda q: q.add_quantizer(SafeTOSAQuantizer(tosa(PROFILES[0]))),
}
OF_NODES = list(SETTINGS)[4:]


@pytest.mark.parametrize("name", SETTINGS)
def test_stock_returns_the_one_inside_and_ours_itself(name):
    stock, ours = TOSAQuantizer(tosa(PROFILES[0])), SafeTOSAQuantizer(tosa(PROFILES[0]))
    assert name not in OF_NODES or SETTINGS[name](stock) is not stock
    assert SETTINGS[name](ours) is ours
    assert SETTINGS[name](ours) is ours


@pytest.mark.parametrize("name", OF_NODES[:3])
def test_the_operator_and_no_other_stays_float(name):
    quantizer = SETTINGS[name](SafeTOSAQuantizer(tosa(PROFILES[0]))).set_global(min_max())
    net = Lambda(lambda m, x: (torch.relu(m.conv(x)) + x).sigmoid())
    graph_module = calibrated(exported(net, image()), quantizer, [image()])
    left = {"relu", "add", "sigmoid"} - {
        node.name.partition("_")[0] for node in call_functions(graph_module) if is_marked_quantized(node)
    }
    assert left == {"relu"}


GIVEN = {
    "set_global": lambda q, given: q.set_global(given),
    "set_io": lambda q, given: q.set_io(given),
    "set_module_type": lambda q, given: q.set_module_type(torch.nn.Conv2d, given),
    "set_module_name": lambda q, given: q.set_module_name("conv", given),
    "set_node_target": lambda q, given: q.set_node_target(RELU, given),
}


@pytest.mark.parametrize("name", GIVEN)
def test_what_is_no_config_is_refused_with_what_to_give(name):
    with pytest.raises(UsageError) as caught:
        GIVEN[name](SafeTOSAQuantizer(tosa(PROFILES[0])), "int8")
    assert str(caught.value) == (
        "config 'int8' is a str; give a QuantizationConfig, such as get_symmetric_quantization_config() for int8, or "
        "None to keep operators float"
    )


TRAINING = get_symmetric_quantization_config(is_qat=True)
OF_MODULES = {
    "a type": lambda q: q.set_module_type(torch.nn.Conv2d, TRAINING),
    "a name": lambda q: q.set_module_name("conv", TRAINING),
    "all": lambda q: q.set_global(TRAINING),
}


@pytest.mark.parametrize("name", OF_MODULES)
def test_a_config_for_training_is_known_whatever_it_is_set_for(name):
    quantizer = SafeTOSAQuantizer(tosa(PROFILES[0])).set_global(min_max())
    assert quantizer.training_config is None
    assert OF_MODULES[name](quantizer).training_config is TRAINING
    assert quantizer.set_global(None).training_config is TRAINING
