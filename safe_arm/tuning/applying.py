"""Put a choice into a quantiser, by the quantiser's own public calls."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from executorch.backends.arm.quantizer import (
    QuantizationConfig,
    TOSAQuantizer,
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
)
from torch.fx import GraphModule
from torchao.quantization.pt2e import MinMaxObserver, MovingAverageMinMaxObserver

from safe_arm.core.errors import UsageError
from safe_arm.core.island import call_functions, op_name
from safe_arm.core.written import module_path
from safe_arm.tuning.quantisation_choice import LEVELS, OBSERVERS, Choice
from safe_arm.tuning.recipe_file import Recipe, read_recipe

_OBSERVERS = {"minmax": MinMaxObserver, "average": MovingAverageMinMaxObserver}
#: The least step of a range, as the stock configs have it.
_EPSILON = {8: 2**-16, 16: 2**-12}


def apply(
    recipe: Recipe | str | Path,
    quantizer: TOSAQuantizer,
    model: GraphModule,
) -> None:
    """Put a recipe into a quantiser, so that it quantises a model as the recipe says.

    Args:
        recipe: a recipe of ``safe-arm tune``, or the name of its file.
        quantizer: a safe quantiser; its global setting, and those of the recipe's operators, are set.
        model: the exported float graph that is going to be quantised.

    Raises:
        UsageError: the recipe cannot be read, or is for another model.
    """
    recipe = recipe if isinstance(recipe, Recipe) else read_recipe(recipe)
    check_model(recipe, model)
    set_choice(quantizer, recipe.choice)


def set_choice(quantizer: TOSAQuantizer, choice: Choice) -> None:
    """Set a quantiser's global config, and those of the operators that a choice names."""
    quantizer.set_global(
        config_of(choice.activations, choice.per_channel, choice.observer)
    )
    for level in LEVELS:
        names = choice.of_level(level)
        if not names:
            continue
        config = None
        if level == "int16":
            config = config_of(16, choice.per_channel, choice.observer)
        quantizer.set_node_name(list(names), config)  # type: ignore[arg-type]


@lru_cache
def config_of(
    activations: int,
    per_channel: bool = True,
    observer: str = OBSERVERS[0],
) -> QuantizationConfig:
    """Return the stock config of a width, with another observer for activations if that is asked for."""
    if activations == 16:
        config = get_symmetric_a16w8_quantization_config(is_per_channel=per_channel)
    else:
        config = get_symmetric_quantization_config(is_per_channel=per_channel)
    if observer not in _OBSERVERS:
        return config
    observing = _OBSERVERS[observer].with_args(eps=_EPSILON[activations])
    spec = replace(config.input_activation, observer_or_fake_quant_ctr=observing)
    return replace(config, input_activation=spec, output_activation=spec)


def fingerprint(model: GraphModule) -> tuple[int, str]:
    """Return the number of an exported graph's operators, and a hash of all about them but their weights."""
    operators = []
    for node in call_functions(model):
        shape = getattr(node.meta.get("val"), "shape", ())
        sizes = [str(size) for size in shape]
        operators.append((node.name, op_name(node), module_path(node), sizes))
    text = json.dumps(operators).encode()
    return len(operators), hashlib.sha256(text).hexdigest()


def check_model(recipe: Recipe, model: GraphModule) -> None:
    """Check that a recipe is for a model.

    Raises:
        UsageError: it is for another; the message says what tells them apart.
    """
    operators, sha256 = fingerprint(model)
    if sha256 == recipe.sha256:
        return
    names = {node.name for node in call_functions(model)}
    lost = [name for name in recipe.choice.operators if name not in names]
    if operators != recipe.operators:
        what = f"its model has {recipe.operators} operators, this one {operators}"
    elif lost:
        what = f"this one has no operator {lost[0]!r}"
    else:
        what = "names, modules or shapes of the operators differ"
    raise UsageError(
        f"the recipe is for another model: {what}; tune this one with safe-arm tune"
    )
