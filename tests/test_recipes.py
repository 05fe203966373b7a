"""A recipe made safe exports with our classes; the recipe it was made from stays stock."""

from importlib.util import find_spec

import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
from executorch.backends.arm.quantizer import TOSAQuantizer, VgfQuantizer, get_symmetric_quantization_config
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.export import ExportRecipe, LoweringRecipe, QuantizationRecipe, export
from lowering import EDGE, tosa
from small import But, Lambda

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer, SafeVgfQuantizer
from safe_arm._compat.marker import MARKER
from safe_arm.core.errors import UsageError
from safe_arm.recipes import safe, safe_partitioner, safe_quantizer

#: A relu that shares its quantisation with a neighbour that has negative values.
JOINED = Lambda(lambda m, x: torch.cat((torch.nn.functional.relu(m.conv(x)), x), 1))


def hand_made(*more):
    spec = tosa("TOSA-1.0+INT")
    quantizer = TOSAQuantizer(spec)
    quantizer.set_global(get_symmetric_quantization_config())
    return ExportRecipe(
        name="by hand",
        quantization_recipe=QuantizationRecipe(quantizers=[quantizer]),
        lowering_recipe=LoweringRecipe(partitioners=[TOSAPartitioner(spec), *more], edge_compile_config=EDGE),
    )


def upstreams_own():
    from executorch.backends.arm.recipes import ArmRecipeType

    return ExportRecipe.get_recipe(ArmRecipeType.TOSA_INT8)


#: ExecuTorch has Arm recipes from 1.5 on.
RECIPES = [hand_made, *([upstreams_own] if find_spec("executorch.backends.arm.recipes") else [])]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda make: make.__name__)
def test_a_recipe_made_safe_exports_and_reports(recipe):
    stock = recipe()
    ours = safe(stock)
    session = export(JOINED, [(torch.randn(1, 4, 8, 8),)], ours)
    assert len(session.get_pte_buffer()) > 1000
    (partitioner,) = ours.lowering_recipe.partitioners
    assert [v.op for v in partitioner.report.fallbacks] == ["aten::convolution", "aten::relu"]
    assert type(stock.lowering_recipe.partitioners[0]) is TOSAPartitioner
    assert type(stock.quantization_recipe.quantizers[0]) is TOSAQuantizer


def test_twice_equals_once():
    once = safe(hand_made())
    twice = safe(once)
    assert twice.lowering_recipe.partitioners[0] is once.lowering_recipe.partitioners[0]
    assert twice.quantization_recipe.quantizers[0] is once.quantization_recipe.quantizers[0]


def test_others_partitioners_stay_in_their_place_and_options_reach_ours():
    xnnpack = XnnpackPartitioner()
    ours, after = safe(hand_made(xnnpack), non_fuseable="propagate").lowering_recipe.partitioners
    assert ours.non_fuseable == "propagate"
    assert after is xnnpack


def test_a_recipe_of_floats_with_a_dict_of_partitioners_by_method():
    recipe = hand_made()
    recipe.quantization_recipe = None
    recipe.lowering_recipe.partitioners = {"forward": recipe.lowering_recipe.partitioners}
    assert safe(recipe).quantization_recipe is None
    assert isinstance(safe(recipe).lowering_recipe.partitioners["forward"][0], SafeArmPartitioner)


@pytest.mark.parametrize(
    "stock",
    [
        lambda check: TOSAPartitioner(tosa("TOSA-1.0+FP"), check),
        lambda check: VgfPartitioner(VgfCompileSpec("TOSA-1.0+INT", ["--an-option"]), check),
        lambda check: EthosUPartitioner(EthosUCompileSpec("ethos-u85-512", extra_flags=["--optimise=Size"]), check),
    ],
    ids=["TOSA", "VGF", "Ethos-U"],
)
def test_a_partitioner_keeps_its_checks_and_compile_spec(stock):
    check = But()
    stock = stock([check])
    ours = safe_partitioner(stock)
    assert isinstance(ours, SafeArmPartitioner)
    assert isinstance(ours, type(stock))
    assert check in ours.additional_checks
    expected = [(s.key, bytes(s.value)) for s in stock.delegation_spec.compile_specs]
    assert [(s.key, bytes(s.value)) for s in ours.delegation_spec.compile_specs if s.key != MARKER] == expected


def test_a_quantiser_keeps_its_settings_and_shares_none():
    stock = VgfQuantizer(VgfCompileSpec("TOSA-1.0+INT"))
    config = get_symmetric_quantization_config(is_per_channel=False)
    stock.set_global(config)
    ours = safe_quantizer(stock)
    assert type(ours) is SafeVgfQuantizer
    assert vars(ours).keys() >= vars(stock).keys()
    assert ours.left_float == ()
    ours.set_global(None)
    inner = getattr(stock, "quantizer", stock)
    assert inner.global_config is not None


def test_subclasses_and_strangers_are_left_alone():
    class Mine(TOSAQuantizer):
        pass

    for one in (Mine(tosa("TOSA-1.0+INT")), SafeTOSAQuantizer(tosa("TOSA-1.0+INT")), object()):
        assert safe_quantizer(one) is one
    assert safe_partitioner(xnnpack := XnnpackPartitioner()) is xnnpack


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (ExportRecipe(name="empty"), "recipe 'empty' has no partitioner and no quantiser of the Arm backend"),
        ("vgf", "takes an executorch.export.ExportRecipe, not str; ExportRecipe.get_recipe makes one"),
    ],
    ids=["nothing of Arm's", "no recipe"],
)
def test_what_cannot_be_made_safe_is_said(given, says):
    with pytest.raises(UsageError, match=says):
        safe(given)
