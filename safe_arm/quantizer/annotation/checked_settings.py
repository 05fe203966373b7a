"""Settings of a quantiser that its profile can run, each of which returns that quantiser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from executorch.backends.arm.quantizer import QuantizationConfig, TOSAQuantizer
from torch._ops import OpOverload
from torchao.quantization.pt2e.quantizer import Quantizer

from safe_arm.core.errors import UsageError
from safe_arm.quantizer.annotation.dynamic_biases import with_float_bias_if_dynamic
from safe_arm.quantizer.annotation.named_settings import NamedSettings
from safe_arm.quantizer.graphs.named_operators import ExportedNameFinder
from safe_arm.quantizer.precision.int16_profile import (
    check_activation_width,
    has_int16_activations,
)
from safe_arm.quantizer.training.trained_constants import is_for_training

if TYPE_CHECKING:  # From 1.4 on.
    from executorch.backends.arm.quantizer.arm_quantizer_utils import NodeFinder

_NO_CONFIG = (
    "config {!r} is a {}; give a QuantizationConfig, such as get_symmetric_quantization_config() for int8, or None to "
    "keep operators float"
)


class CheckedSettings(TOSAQuantizer):
    """The settings of the stock class, checked; stock returns a quantiser inside this one from some of them.

    Attributes:
        is_set_by_name: some operators have a config by their names.
        is_set_in_part: some operators have a config of their own, by their names, modules or targets.
        is_set_to_int16: some operators have a config with activations of 16 bits.
        training_config: the latest config for training that was set; None if there is none.
    """

    is_set_by_name = False
    is_set_in_part = False
    is_set_to_int16 = False
    training_config: QuantizationConfig | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._named = NamedSettings()
        super().__init__(*args, **kwargs)

    def set_global(
        self, quantization_config: QuantizationConfig | None
    ) -> TOSAQuantizer:
        """Set the default config as the stock class does, if the profile can run it.

        Raises:
            UsageError: no config, or 16-bit activations under a profile without the int16 extension. All setters raise
                it.
        """
        return super().set_global(self._checked(quantization_config))

    def set_io(self, quantization_config: QuantizationConfig | None) -> TOSAQuantizer:
        """Set the config of inputs and outputs as the stock class does, if the profile can run it."""
        return super().set_io(self._checked(quantization_config))

    def set_module_type(
        self,
        module_type: Callable[..., Any],
        quantization_config: QuantizationConfig | None,
    ) -> TOSAQuantizer:
        """Set a module type's config as the stock class does, if the profile can run it."""
        self.is_set_in_part = True
        return super().set_module_type(module_type, self._checked(quantization_config))

    def set_module_name(
        self, module_name: str, quantization_config: QuantizationConfig | None
    ) -> TOSAQuantizer:
        """Set a module's config as the stock class does, if the profile can run it.

        A name that the net does not have is warned of when the net is prepared.
        """
        self.is_set_in_part = True
        self._named.add_module(module_name)
        return super().set_module_name(module_name, self._checked(quantization_config))

    def set_node_name(
        self,
        node_name: str | Sequence[str],
        quantization_config: QuantizationConfig | None,
    ) -> TOSAQuantizer:
        """Set an operator's config as the stock class does, and the config of everything it is decomposed into (from
        1.4).

        Args:
            node_name: its name in the exported graph, or several names, which are matched as one pattern if they form
                one.
            quantization_config: ``None`` keeps it float.
        """
        self.is_set_by_name = True
        names = (node_name,) if isinstance(node_name, str) else tuple(node_name)
        self._named.add_nodes(names)
        return self.set_node_finder(quantization_config, ExportedNameFinder(names))

    def set_node_target(
        self,
        node_target: OpOverload,
        quantization_config: QuantizationConfig | None,
    ) -> TOSAQuantizer:
        """Set the config of all calls of an operator as the stock class does, if the profile can run it."""
        self.is_set_in_part = True
        super().set_node_target(node_target, self._checked(quantization_config))
        return self

    def set_node_finder(
        self, quantization_config: QuantizationConfig | None, node_finder: NodeFinder
    ) -> TOSAQuantizer:
        """Set the config of what a finder finds as the stock class does, if the profile can run it."""
        self.is_set_in_part = True
        super().set_node_finder(self._checked(quantization_config), node_finder)
        return self

    def add_quantizer(self, quantizer: Quantizer) -> TOSAQuantizer:
        """Let another quantiser annotate first, as the stock class does."""
        self.is_set_in_part = True
        super().add_quantizer(quantizer)
        return self

    def _checked(self, config: QuantizationConfig | None) -> QuantizationConfig | None:
        """Return a config that the profile can run, with float biases if it is dynamic."""
        if config is not None and not isinstance(config, QuantizationConfig):
            raise UsageError(_NO_CONFIG.format(config, type(config).__name__))
        check_activation_width(config, self.tosa_spec)
        if has_int16_activations(config):
            self.is_set_to_int16 = True
        if is_for_training(config):
            self.training_config = config
        return with_float_bias_if_dynamic(config)
