"""Warn of a quantiser without any config, which leaves the whole net float without a word."""

from __future__ import annotations

from executorch.backends.arm.quantizer import TOSAQuantizer

_UNSET = (
    "the quantiser has no config, so every operator stays float; call set_global(get_symmetric_quantization_config()) "
    "first"
)
#: Where the stock classes, and the one inside them, keep what was set; some differ by release.
_SETTINGS = (
    "global_config",
    "io_config",
    "module_type_config",
    "module_name_config",
    "_quantizers",
)


def doubts_of_unset(quantizer: TOSAQuantizer) -> tuple[str, ...]:
    """Return the warning about a quantiser for which nothing was set; empty if anything was, even to float."""
    if not quantizer.tosa_spec.support_integer():
        return ()
    inner = getattr(quantizer, "quantizer", quantizer)
    for setting in _SETTINGS:
        if getattr(inner, setting, None):
            return ()
    return (_UNSET,)
