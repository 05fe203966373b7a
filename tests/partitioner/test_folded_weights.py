"""Weights that convert_pt2e left to be quantised are folded before stock looks at them."""

import copy

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import PROFILES, RELEASE, lower, lower_exactly, min_max, tosa
from small import Lambda, image
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import safe_arm
from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm.partitioner.folded_weights import with_folded_weights

FROM_1_5 = pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 hands no program on before it decomposes it")
SPEC = tosa(PROFILES[0])


class OfABuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kernel", torch.randn(2, 4, 3, 3))

    def forward(self, x):
        return nn.functional.conv2d(x, self.kernel)


NETS = {
    "convolution": lambda: nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
    "transposed": lambda: nn.ConvTranspose2d(4, 2, 2, 2),
    "linear": lambda: nn.Linear(8, 5),
    "buffer": OfABuffer,
}


def unfolded(net, fold=False):
    """Quantise, and leave each weight with its quantise node."""
    torch.manual_seed(0)
    model = net().eval()
    quantizer = SafeTOSAQuantizer(SPEC)
    quantizer.set_global(min_max())
    prepared = prepare_pt2e(torch.export.export(model, image()).module(check_guards=False), quantizer)
    prepared(*image())
    return convert_pt2e(prepared, fold_quantize=fold)


@FROM_1_5
def test_such_a_graph_is_a_reference_of_verify():
    graph_module = unfolded(NETS["convolution"])
    manager = lower(graph_module, image(), SafeArmPartitioner(SPEC, verify=False))
    report = safe_arm.verify(manager, [image(), image(1)], reference=graph_module)
    assert [gap.worst for gap in report.outputs] == [0]


@FROM_1_5
@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_no_code_is_off_and_nothing_stays_on_the_cpu(net, profile):
    lower_exactly(unfolded(net), tosa(profile), image(), image(1))


@pytest.mark.parametrize("net", [NETS["convolution"], NETS["linear"]], ids=["convolution", "linear"])
def test_stock_dies_of_it(net):
    with pytest.raises(Exception, match="An error occurred when running"):
        lower(unfolded(net), image(), TOSAPartitioner(SPEC))


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_the_codes_are_those_of_the_program_which_is_left_as_it_is(net):
    program = torch.export.export(unfolded(net), image())
    state = {name: copy.deepcopy(value) for name, value in program.state_dict.items()}
    code = program.graph_module.code
    folded = with_folded_weights(program)
    assert torch.equal(folded.module()(*image(1)), program.module()(*image(1)))
    assert any(value.dtype == torch.int8 for value in folded.state_dict.values())
    assert program.graph_module.code == code
    assert all(torch.equal(value, state[name]) for name, value in program.state_dict.items())


def test_folding_twice_is_folding_once():
    folded = with_folded_weights(torch.export.export(unfolded(NETS["convolution"]), image()))
    assert with_folded_weights(folded) is folded


def _read_as_floats(m, x):
    return torch.ops.quantized_decomposed.quantize_per_tensor(m.weight, 0.1, 0, -128, 127, torch.int8) + m.weight


def _in_two_domains(m, x):
    quantize = torch.ops.quantized_decomposed.quantize_per_tensor
    return quantize(m.weight, 0.1, 0, -128, 127, torch.int8) + quantize(m.weight, 0.2, 0, -128, 127, torch.int8)


def _of_an_input(m, x):
    return torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.1, 0, -128, 127, torch.int8)


def _of_a_run_time_scale(m, x):
    return torch.ops.quantized_decomposed.quantize_per_channel(m.weight, x[0, 0, 0, :4], None, 0, -128, 127, torch.int8)


@pytest.mark.parametrize("net", [_read_as_floats, _in_two_domains, _of_an_input, _of_a_run_time_scale])
def test_what_is_no_weight_in_one_domain_is_left_alone(net):
    module = Lambda(net)
    module.weight = nn.Parameter(torch.randn(4, 4))
    program = torch.export.export(module, image())
    assert with_folded_weights(program) is program


def test_a_program_whose_weights_are_folded_is_returned_itself():
    program = torch.export.export(unfolded(NETS["convolution"], fold=True), image())
    assert with_folded_weights(program) is program
