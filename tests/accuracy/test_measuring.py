"""Float against quantised: known errors in small nets, each found where it is, in the size it has."""

import copy
import math
from dataclasses import replace

import pytest
import torch
import torch.nn as nn
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from small import Built

from safe_arm._compat.upstream import TosaCompileSpec
from safe_arm.accuracy import EXACT_DB, measure, tag_units
from safe_arm.core.errors import DoubtfulInputWarning
from safe_arm.core.island import QUANTIZE, op_name
from safe_arm.core.unit_accuracy import UNIT_KEY
from safe_arm.quantizer.proof import float_run
from safe_arm.quantizer.safe_quantizers import SafeTOSAQuantizer


class Three(nn.Module):
    """Three convolutions with batch norms, one of them depthwise, and a linear."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.depthwise, self.b = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 4, 1)
        self.head = nn.Linear(4, 5)
        nn.init.uniform_(self.norm.running_mean, -0.5, 0.5)
        nn.init.uniform_(self.norm.running_var, 0.5, 1.5)
        self.eval()

    def forward(self, x):
        x = self.depthwise(torch.relu_(self.norm(self.a(x))))
        return self.head(self.b(x).mean((2, 3)))


def samples_of(*shape, number=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(shape, generator=generator),) for _ in range(number)]


def quantised(net, samples):
    program = torch.export.export(net, samples[0])
    quantizer = SafeTOSAQuantizer(TosaCompileSpec("TOSA-1.0+INT"))
    quantizer.set_global(get_symmetric_quantization_config())
    quantizer.keep_reference = True
    converted = quantizer.quantize_with_submodules(program.module(check_guards=False), samples)
    return program, quantizer.reference, converted


SAMPLES = samples_of(1, 3, 8, 8)


@pytest.fixture(scope="module")
def three():
    return quantised(Three(), SAMPLES)


@pytest.fixture(scope="module")
def found(three):
    _, reference, converted = three
    return measure(reference, converted, SAMPLES)


@pytest.fixture
def units(found):
    return {unit.name: unit for unit in found.units}


def test_every_unit_of_a_net_is_measured(found):
    computing = [unit for unit in found.units if unit.op in ("", "aten::conv2d", "aten::linear")]
    assert [(unit.name, unit.module, unit.op) for unit in computing] == [
        ("x", "", ""),
        ("relu_", "a", "aten::conv2d"),
        ("conv2d_1", "depthwise", "aten::conv2d"),
        ("conv2d_2", "b", "aten::conv2d"),
        ("linear", "head", "aten::linear"),
    ]
    assert (found.unmeasured, found.samples) == (0, 8)
    assert all(20 < unit.cumulative_db < 60 for unit in found.units)


def test_measuring_twice_gives_the_same_and_changes_neither_net(three, found):
    _, reference, converted = three
    before = [str(net.graph) for net in (reference, converted)], copy.deepcopy(converted.state_dict())
    again = measure(reference, converted, SAMPLES)
    assert replace(again, seconds=0.0) == replace(found, seconds=0.0)
    assert [str(net.graph) for net in (reference, converted)] == before[0]
    assert all(torch.equal(converted.state_dict()[name], value) for name, value in before[1].items())


def test_the_ratios_are_those_of_the_nets_run_by_hand(three, units):
    """Cumulative at the last unit is the output's; alone, an input is its own rounding and a linear its own sum."""
    _, reference, converted = three
    with torch.no_grad():
        wanted, got = (torch.cat([net(*each) for each in SAMPLES]) for net in (reference, converted))
    assert units["linear"].cumulative_db == pytest.approx(ratio(wanted, got), abs=1e-3)
    quantise = next(node for node in converted.graph.nodes if op_name(node) == QUANTIZE)
    x = torch.cat([each[0] for each in SAMPLES])
    rounded = torch.fake_quantize_per_tensor_affine(x, *quantise.args[1:5])
    assert units["x"].isolated_db == units["x"].cumulative_db == pytest.approx(ratio(x, rounded), abs=1e-3)


def test_the_worst_sample_has_the_ratio_that_it_has_alone(three, found):
    _, reference, converted = three
    alone = [measure(reference, converted, [each]).outputs_db[0] for each in SAMPLES]
    assert found.worst_sample_db == pytest.approx(min(alone), abs=1e-6)
    assert found.worst_sample_db < found.outputs_db[0]
    assert found.worst_sample == alone.index(min(alone))


def test_a_pooled_ratio_of_an_outlier_hides_nothing():
    """One sample of 1e6 takes the range and the signal: the others are lost, and the worst of them says so."""
    torch.manual_seed(0)
    samples = [*SAMPLES]
    samples[3] = (samples[3][0] * 1e6,)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    with pytest.warns(DoubtfulInputWarning, match="input 'input_?1?': in half of the calibration samples"):
        _, reference, converted = quantised(net, samples)
    found = measure(reference, converted, samples)
    assert found.outputs_db[0] > 30
    assert found.worst_sample_db < 1
    assert found.worst_sample != 3


def test_an_error_planted_in_one_unit_is_its_own_alone(three, units):
    """Everything after it is as far off as it is; alone, the others are as good as before, to the last digit."""
    _, reference, converted = three
    damaged = copy.deepcopy(converted)
    conv = next(node for node in damaged.graph.nodes if node.name == "conv2d_1")
    weight = damaged.get_buffer(str(conv.args[1].args[0].target))
    weight[5] = (weight[5] * 0.875).round()  # so little of one channel that nothing saturates behind it
    found = measure(reference, damaged, SAMPLES)
    after = {unit.name: unit for unit in found.units}
    assert found.worst[0].name == "conv2d_1"
    assert after["conv2d_1"].worst_channel == 5
    assert after["conv2d_1"].worst_channel_db == pytest.approx(18, abs=3)
    assert after["conv2d_1"].isolated_db < 32 < units["conv2d_1"].isolated_db
    others = [name for name in units if name != "conv2d_1"]
    assert [after[name].isolated_db for name in others] == [units[name].isolated_db for name in others]
    assert after["relu_"] == replace(units["relu_"], output_noise=after["relu_"].output_noise)
    assert after["linear"].cumulative_db < units["linear"].cumulative_db - 10
    assert found.explained == pytest.approx(1, abs=0.1), "five outputs, and nothing but sums behind it"


def test_units_that_move_or_scale_codes_have_no_error_of_their_own(units):
    assert units["reshape"].isolated_db == units["mul"].isolated_db == EXACT_DB
    assert units["reshape"].cumulative_db < 60


def test_the_program_will_do_for_a_reference(three, units):
    """What the quantiser decomposes is missing; a convolution is compared with its batch norm behind it."""
    program, _, converted = three
    coarse = measure(program, converted, SAMPLES)
    assert coarse.unmeasured == len(units) - len(coarse.units) > 0
    for unit in coarse.units:
        assert unit.cumulative_db == pytest.approx(units[unit.name].cumulative_db, abs=0.01)


def test_operators_in_place_reach_no_logged_value():
    """A relu in place behind the quantised result of a convolution, in the float net too."""

    def forward(m, x):
        y = m.conv(x)
        return torch.cat((y, x), 1), torch.relu_(y)

    torch.manual_seed(0)
    _, reference, converted = quantised(Built(forward, conv=nn.Conv2d(3, 4, 1)).eval(), SAMPLES)
    found = measure(reference, converted, SAMPLES)
    assert min(unit.cumulative_db for unit in found.units) > 25
    assert len(found.outputs_db) == 2


def test_errors_that_add_up_are_not_explained():
    """Eight convolutions with one error, a tenth of their weights, are summed: eight times the noise of eight."""
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 4, 1, bias=False)
    convs = nn.ModuleList(copy.deepcopy(conv) for _ in range(8))
    eight = Built(lambda m, x: torch.stack([conv(x) for conv in m.convs]).sum(0), convs=convs)
    _, reference, converted = quantised(eight.eval(), SAMPLES)
    for node in converted.graph.nodes:
        if op_name(node) == "aten::conv2d":
            weight = converted.get_buffer(str(node.args[1].args[0].target))
            weight.copy_((weight * 0.9).round())
    assert measure(reference, converted, SAMPLES).explained == pytest.approx(1 / 8, rel=0.5)


def test_many_samples_are_spread_over(three):
    taken = []

    class Watched(list):
        def __getitem__(self, index):
            taken.append(index)
            return super().__getitem__(index)

    found = measure(three[1], three[2], Watched(samples_of(1, 3, 8, 8, number=20)), limit=4)
    assert (found.samples, taken) == (4, [0, 5, 10, 15])


def test_the_first_32_are_compared_as_by_the_comparison_with_the_float_net(three):
    program, reference, converted = three
    samples = samples_of(1, 3, 8, 8, number=40)
    found = measure(reference, converted, samples)
    assert found.samples == float_run.SAMPLES
    with torch.no_grad():
        exact, got = (torch.cat([net(*each) for each in samples[:32]]) for net in (program.module(), converted))
    ratio = 10 * torch.log10(exact.square().mean() / (exact - got).square().mean())
    assert found.outputs_db == (pytest.approx(float(ratio), abs=0.01),)


def test_integer_outputs_have_no_ratio():
    torch.manual_seed(0)
    net = Built(lambda m, x: m.linear(x).argmax(1), linear=nn.Linear(6, 5))
    _, reference, converted = quantised(net.eval(), samples_of(2, 6))
    found = measure(reference, converted, samples_of(2, 6))
    assert (found.outputs_db, found.worst_output_db, found.explained) == ((), None, None)
    assert found.worst_sample_db is None
    assert [unit.output_noise for unit in found.units] == [None] * len(found.units)
    assert found.worst[0].isolated_db == min(unit.isolated_db for unit in found.units)


def test_without_a_quantised_unit_nothing_is_measured(three):
    _, reference, _ = three
    found = measure(reference, reference, SAMPLES)
    assert (found.units, found.outputs_db) == ((), (EXACT_DB,))


def test_units_are_written_on_their_operators_and_kept_by_export(three):
    _, _, converted = three
    tagged = copy.deepcopy(converted)
    tag_units(tagged)
    program = torch.export.export(tagged, SAMPLES[0])
    units = {node.name: node.meta.get("custom", {}).get(UNIT_KEY) for node in program.graph.nodes}
    assert (units["conv2d"], units["relu_"], units["linear"]) == ("relu_", "relu_", "linear")


def ratio(wanted, got):
    return 10 * math.log10(float(wanted.double().square().mean() / (wanted - got).double().square().mean()))
