"""16-bit activations under a profile without int16 are refused at once, and the right profile is named."""

import re

import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import (
    TOSAQuantizer,
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
)
from executorch.backends.arm.vgf import VgfCompileSpec
from lowering import HISTOGRAM, WIDE, tosa

from safe_arm import SafeEthosUQuantizer, SafeTOSAQuantizer, SafeVgfQuantizer, UsageError
from safe_arm.quantizer.graphs.named_operators import ExportedNameFinder

SETTERS = {
    "set_global": lambda q, config: q.set_global(config),
    "set_io": lambda q, config: q.set_io(config),
    "set_module_type": lambda q, config: q.set_module_type(torch.nn.Conv2d, config),
    "set_module_name": lambda q, config: q.set_module_name("conv", config),
    "set_node_name": lambda q, config: q.set_node_name("softmax", config),
    "set_node_target": lambda q, config: q.set_node_target(torch.ops.aten.conv2d.default, config),
    "set_node_finder": lambda q, config: q.set_node_finder(config, ExportedNameFinder(["softmax"])),
}
LACKING = {
    "TOSA-1.0+INT": "TOSA-1.0+INT+int16",
    "TOSA-1.0+INT+FP": "TOSA-1.0+INT+FP+int16",
    "TOSA-1.0+INT+int4": "TOSA-1.0+INT+int4+int16",
    "TOSA-1.0+FP": "TOSA-1.0+FP+INT+int16",
}


@pytest.mark.parametrize("setter", SETTERS)
def test_stock_takes_it_and_ours_refuses_it(setter):
    SETTERS[setter](TOSAQuantizer(tosa("TOSA-1.0+INT")), WIDE)
    says = r"need the int16 extension.*use TOSA-1\.0\+INT\+int16, or a config with 8-bit"
    with pytest.raises(UsageError, match=says):
        SETTERS[setter](SafeTOSAQuantizer(tosa("TOSA-1.0+INT")), WIDE)


@pytest.mark.parametrize("setter", SETTERS)
def test_dynamic_ones_are_refused_in_any_profile(setter):
    config = get_symmetric_a16w8_quantization_config(is_dynamic=True)
    SETTERS[setter](TOSAQuantizer(tosa("TOSA-1.0+INT+int16")), config)
    with pytest.raises(UsageError, match=r"cannot be dynamic.*use is_dynamic=False"):
        SETTERS[setter](SafeTOSAQuantizer(tosa("TOSA-1.0+INT+int16")), config)
    SETTERS[setter](SafeTOSAQuantizer(tosa("TOSA-1.0+INT")), get_symmetric_quantization_config(is_dynamic=True))


@pytest.mark.parametrize("profile", LACKING)
def test_the_profile_it_names_takes_it(profile):
    with pytest.raises(UsageError, match=re.escape(f"use {LACKING[profile]}, or")):
        SafeTOSAQuantizer(tosa(profile)).set_global(WIDE)
    SafeTOSAQuantizer(tosa(LACKING[profile])).set_global(WIDE)


@pytest.mark.parametrize("setter", SETTERS)
def test_near_misses_are_taken(setter):
    SETTERS[setter](SafeTOSAQuantizer(tosa("TOSA-1.0+INT")), HISTOGRAM)
    SETTERS[setter](SafeTOSAQuantizer(tosa("TOSA-1.0+INT+int16")), WIDE)
    SETTERS[setter](SafeTOSAQuantizer(tosa("TOSA-1.0+INT")), None)


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
def test_every_ethos_u_has_int16(target):
    SafeEthosUQuantizer(EthosUCompileSpec(target=target)).set_global(WIDE)


def test_vgf_has_int16_by_default_and_not_for_every_profile():
    SafeVgfQuantizer(VgfCompileSpec()).set_global(WIDE)
    with pytest.raises(UsageError, match=r"TOSA-1\.0\+INT\+FP\+int16"):
        SafeVgfQuantizer(VgfCompileSpec("TOSA-1.0+INT+FP")).set_global(WIDE)
