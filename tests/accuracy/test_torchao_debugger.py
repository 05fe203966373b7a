"""What torchao's numeric debugger gets wrong by itself (T13, T14), and that the measurement does not."""

import pytest
import torch
import torch.nn as nn
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from small import Built
from torchao.quantization.pt2e import compare_results, extract_results_from_loggers, prepare_for_propagation_comparison
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from safe_arm._compat.upstream import TosaCompileSpec
from safe_arm.accuracy import measure

SAMPLE = (torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)


def converted(net):
    """Return a net's program, and what the stock quantiser makes of it."""
    program = torch.export.export(net.eval(), SAMPLE)
    quantizer = TOSAQuantizer(TosaCompileSpec("TOSA-1.0+INT"))
    quantizer.set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(program.module(), quantizer)
    prepared(*SAMPLE)
    return program, convert_pt2e(prepared)


def debugged(program, quantised):
    """Return what the debugger logs of each node: the float value, and the quantised one."""
    nets = [prepare_for_propagation_comparison(net) for net in (program.module(), quantised)]
    for net in nets:
        net(*SAMPLE)
    compared = compare_results(*map(extract_results_from_loggers, nets))
    return {handle.name: summary.results[0] for handle, summary in compared.items()}


def overwritten(m, x):
    y = m.conv(x)
    beside = torch.cat((y, x), 1)
    return beside, torch.relu_(y)


def test_a_folded_batch_norm():
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4)
    nn.init.constant_(norm.weight, 10.0)
    nn.init.constant_(norm.bias, 3.0)
    program, quantised = converted(nn.Sequential(nn.Conv2d(3, 4, 1), norm))
    assert float(debugged(program, quantised)["conv2d"].sqnr) < 5
    unit = next(unit for unit in measure(program, quantised, [SAMPLE]).units if unit.name == "conv2d")
    assert unit.cumulative_db > 35


def test_an_operator_in_place():
    torch.manual_seed(0)
    program, quantised = converted(Built(overwritten, conv=nn.Conv2d(3, 4, 1)))
    logged = debugged(program, quantised)["conv2d"].ref
    assert float(logged.min()) == 0, "the relu of it"
    unit = next(unit for unit in measure(program, quantised, [SAMPLE]).units if unit.name == "conv2d")
    with torch.no_grad():
        wanted, got = program.module()(*SAMPLE)[0][:, :4], quantised(*SAMPLE)[0][:, :4]
    assert unit.cumulative_db == pytest.approx(20 * torch.log10(wanted.norm() / (wanted - got).norm()).item(), abs=3)
