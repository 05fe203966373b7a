"""A recipe put into a quantiser by one line of a script."""

import pytest
import torch
from executorch.backends.arm.vgf import VgfCompileSpec
from torchao.quantization.pt2e import MinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import safe_arm.tuning
from safe_arm import SafeVgfQuantizer, UsageError
from safe_arm.tuning.applying import config_of, fingerprint, set_choice
from safe_arm.tuning.quantisation_choice import Choice
from safe_arm.tuning.recipe_file import Recipe

INPUTS = (torch.linspace(-1, 1, 256).reshape(1, 4, 8, 8),)


def model(channels=4):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(4, channels, 1), torch.nn.Sigmoid(), torch.nn.Conv2d(channels, 4, 1))
    return torch.export.export(net.eval(), INPUTS).module(check_guards=False)


def converted(prepare):
    quantizer, graph_module = SafeVgfQuantizer(VgfCompileSpec("TOSA-1.0+INT+FP+int16")), model()
    prepare(quantizer, graph_module)
    prepared = prepare_pt2e(graph_module, quantizer)
    prepared(*INPUTS)
    return convert_pt2e(prepared)


def recipe_for(graph_module, **operators):
    return Recipe(Choice(operators=operators), *fingerprint(graph_module), "vgf", "TOSA-1.0+INT+FP+int16")


def test_one_line_of_a_script(tmp_path):
    recipe_for(model(), sigmoid="int16", conv2d_1="float").save(tmp_path / "r.json")
    by_file = converted(lambda quantizer, module: safe_arm.tuning.apply(tmp_path / "r.json", quantizer, module))

    def by_hand(quantizer, module):
        quantizer.set_global(config_of(8))
        quantizer.set_node_name("sigmoid", config_of(16))
        quantizer.set_node_name("conv2d_1", None)

    assert by_file.code == converted(by_hand).code
    assert "int16" in by_file.code
    assert by_file.code != converted(lambda quantizer, module: set_choice(quantizer, Choice())).code


def test_a_recipe_without_operators_is_the_stock_setting():
    changed = converted(lambda quantizer, module: safe_arm.tuning.apply(recipe_for(module), quantizer, module))
    assert changed.code == converted(lambda quantizer, module: quantizer.set_global(config_of(8))).code


@pytest.mark.parametrize("bits", [8, 16])
def test_another_observer_is_the_only_difference(bits):
    stock, ours = config_of(bits), config_of(bits, observer="minmax")
    assert (stock.weight, stock.bias) == (ours.weight, ours.bias)
    for spec in (ours.input_activation, ours.output_activation):
        assert isinstance(spec.observer_or_fake_quant_ctr(), MinMaxObserver)
        assert spec.dtype == stock.input_activation.dtype


def test_a_recipe_for_another_model_names_what_differs():
    recipe = recipe_for(model(), sigmoid="int16")
    with pytest.raises(UsageError, match="names, modules or shapes of the operators differ; tune this one"):
        safe_arm.tuning.apply(recipe, SafeVgfQuantizer(VgfCompileSpec("TOSA-1.0+INT+FP+int16")), model(5))


def test_weights_do_not_count():
    other = model()
    with torch.no_grad():
        next(other.parameters()).add_(1)
    assert fingerprint(other) == fingerprint(model())
