"""A quantiser without any config is warned of; one that has a config for any part is not."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, min_max, tosa
from small import Lambda, image
from spying import doubts
from stubborn import exported
from torch.fx import GraphModule
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.graphs.named_operators import ExportedNameFinder

NET = Lambda(lambda m, x: torch.relu(m.conv(x)))


def told(quantizer):
    """What is warned of while a net is prepared."""
    prepared, said = doubts(lambda: prepare_pt2e(exported(NET, image()), quantizer))
    assert isinstance(prepared, GraphModule)
    return said


def test_stock_says_nothing_of_a_forgotten_config():
    assert told(TOSAQuantizer(tosa(PROFILES[0]))) == []


def test_a_forgotten_config_is_warned_of():
    (message,) = told(SafeTOSAQuantizer(tosa(PROFILES[0])))
    assert message == (
        "the quantiser has no config, so every operator stays float; call "
        "set_global(get_symmetric_quantization_config()) first"
    )


def test_a_profile_without_integers_needs_none():
    assert told(SafeTOSAQuantizer(tosa("TOSA-1.0+FP"))) == []


def by_property(quantizer):
    quantizer.module_name_config = {"conv": min_max()}


SET = {
    "everything": lambda q: q.set_global(min_max()),
    "borders": lambda q: q.set_io(min_max()),
    "a type": lambda q: q.set_module_type(torch.nn.Conv2d, min_max()),
    "a module": lambda q: q.set_module_name("conv", min_max()),
    "a module, by the property": by_property,
    "an operator": lambda q: q.set_node_name("relu", min_max()),
    "a target": lambda q: q.set_node_target(torch.ops.aten.relu.default, min_max()),
    "what is found": lambda q: q.set_node_finder(min_max(), ExportedNameFinder(["relu"])),
    "another quantiser": lambda q: q.add_quantizer(SafeTOSAQuantizer(tosa(PROFILES[0])).set_global(min_max())),
    "a part that stays float": lambda q: q.set_module_name("conv", None),
}


@pytest.mark.parametrize("setting", SET.values(), ids=SET)
def test_a_config_for_any_part_is_enough(setting):
    quantizer = SafeTOSAQuantizer(tosa(PROFILES[0]))
    setting(quantizer)
    assert told(quantizer) == []
    assert told(quantizer) == []
