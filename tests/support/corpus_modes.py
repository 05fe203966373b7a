"""The profiles and configurations that the nets of the corpus take turns in."""

from executorch.backends.arm.quantizer import get_symmetric_a16w8_quantization_config, get_symmetric_quantization_config
from graph_changes import quantised_whole
from lowering import tosa

from safe_arm import SafeTOSAQuantizer

#: The profile, what to quantise to, what becomes of islands that are not fuseable.
MODES = {
    "INT": ("TOSA-1.0+INT", get_symmetric_quantization_config, "reject"),
    "FP": ("TOSA-1.0+FP", None, "reject"),
    "INT+FP": ("TOSA-1.0+INT+FP", get_symmetric_quantization_config, "propagate"),
    "INT-tensor": ("TOSA-1.0+INT", lambda: get_symmetric_quantization_config(is_per_channel=False), "propagate"),
    "INT+FP-tensor": ("TOSA-1.0+INT+FP", lambda: get_symmetric_quantization_config(is_per_channel=False), "reject"),
    "INT-a16w8": ("TOSA-1.0+INT+int16", get_symmetric_a16w8_quantization_config, "propagate"),
    "INT+FP-islands": ("TOSA-1.0+INT+FP", get_symmetric_quantization_config, "reject"),
}


def mode_of(number):
    """Which mode a net of the corpus is tried in."""
    return list(MODES)[number % len(MODES)]


def quantised(corpus, mode, quantizer_class=SafeTOSAQuantizer):
    """The net as the partitioner gets it; for islands, its first layer after the stem stays float."""
    profile, config, _ = MODES[mode]
    if config is None:
        return corpus.net
    quantizer = quantizer_class(tosa(profile))
    quantizer.set_global(config())
    if mode.endswith("islands"):
        quantizer.set_module_name("3" if len(corpus.net) > 4 else "0", None)
    return quantised_whole(quantizer, corpus.net, corpus.samples)
