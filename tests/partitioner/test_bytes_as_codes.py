"""Bytes that are cast to floats enter a delegate as they are."""

import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.backends.arm.vgf import VgfCompileSpec
from lowering import PROFILES, RELEASE, lower, lower_exactly, min_max, quantize, tosa
from small import Lambda

from safe_arm import SafeArmPartitioner
from safe_arm.partitioner.bytes_as_codes import with_bytes_as_codes

FROM_1_5 = pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 hands no program on before it decomposes it")
NETS = {
    "scaled": lambda m, x: m.conv(x.float() / 255),
    "moved": lambda m, x: m.conv(x.permute(0, 3, 1, 2).float() / 255),
    "as it is": lambda m, x: m.conv(x.float()),
}
OTHERS = {
    "read as floats": lambda m, x: [m.conv(y := x.float()), torch.special.i0(y)],
    "an index": lambda m, x: m.conv(torch.arange(256.0)[x.long()]),
    "of 16 bits": lambda m, x: m.conv(x.short().float()),
}


def images(seed=0):
    return (torch.randint(0, 256, (1, 4, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)),)


def quantised(net):
    return quantize(Lambda(net), images(), tosa(PROFILES[0]), config=min_max())


@FROM_1_5
@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_nothing_of_it_stays_on_the_cpu_and_no_code_is_off(net, profile):
    lower_exactly(quantised(net), tosa(profile), images(), images(1))


def test_stock_casts_on_the_cpu():
    graph_module = quantised(NETS["scaled"])
    program = lower(graph_module, images(), TOSAPartitioner(tosa(PROFILES[0]))).exported_program()
    assert any("_to_dim_order_copy" in str(node.target) for node in program.graph.nodes)


@FROM_1_5
@pytest.mark.parametrize("spec", [VgfCompileSpec(PROFILES[1]), EthosUCompileSpec("ethos-u55-128")], ids=["vgf", "u55"])
def test_other_targets_take_bytes(spec):
    partitioner = SafeArmPartitioner(spec)
    lower(quantised(NETS["moved"]), images(), partitioner)
    assert (partitioner.report.fallbacks, len(partitioner.report.verifications)) == ((), 1)


@pytest.mark.parametrize("net", OTHERS.values(), ids=OTHERS)
def test_what_is_no_code_of_a_byte_is_left_alone(net):
    program = torch.export.export(quantised(net), images())
    assert with_bytes_as_codes(program) is program


def test_once_is_enough():
    program = torch.export.export(quantised(NETS["moved"]), images())
    changed = with_bytes_as_codes(program)
    assert changed is not program
    assert with_bytes_as_codes(changed) is changed
    assert torch.equal(changed.module()(*images(1)), program.module()(*images(1)))
