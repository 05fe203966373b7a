"""A cast of a dequantised value to an integer reads the codes, shifted."""

import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import (
    PROFILES,
    RELEASE,
    lower,
    lower_exactly,
    lower_safely,
    min_max,
    quantize,
    tosa,
)
from small import Built, Lambda

from safe_arm.core.island import op_name
from safe_arm.partitioner.casts_of_codes import with_casts_of_codes

FROM_1_5 = pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 hands no program on before it decomposes it")
TABLE = torch.linspace(0, 1, 17).sqrt()
INT8 = frozenset((torch.int8,))
NETS = {
    "rows of a table": lambda m, x: TABLE[(x.abs() * 16).floor().clamp(0, 15).int()] * x,
    "in 64 bits": lambda m, x: TABLE[(x.abs() * 16).floor().clamp(0, 15).long()] * x,
    "selected by a view": lambda m, x: TABLE.index_select(0, (x.abs() * 15).round().long().reshape(-1)) * 2,
    "neighbours": lambda m, x: TABLE[(i := (x.abs() * 15).floor().int())] * x + TABLE[i + 1],
    "from below zero": lambda m, x: TABLE[(x * 7).floor().int() + 8] * x,
}


def inputs(seed=0):
    return (torch.rand(2, 32, generator=torch.Generator().manual_seed(seed)) * 2 - 1,)


def quantised(net):
    return quantize(Lambda(net), inputs(), tosa(PROFILES[0]), config=min_max())


def cast_of(scale, zero_point=0, dtype=torch.int32, codes_dtype=torch.int8):
    """Return a program that casts every code of a domain."""
    limits = torch.iinfo(codes_dtype)
    codes = torch.arange(limits.min, limits.max + 1).to(codes_dtype)
    domain = (scale, zero_point, limits.min, limits.max, codes_dtype)

    def dequantised(m, x):
        return torch.ops.quantized_decomposed.dequantize_per_tensor.default(x, *domain).to(dtype) + 0

    return torch.export.export(Built(dequantised), (codes,)), codes


@FROM_1_5
@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_nothing_of_it_stays_on_the_cpu_and_no_code_is_off(net):
    lower_exactly(quantised(net), tosa(PROFILES[0]), inputs(), inputs(1))


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_stock_casts_on_the_cpu(net):
    program = lower(quantised(net), inputs(), TOSAPartitioner(tosa(PROFILES[0]))).exported_program()
    assert "dim_order_ops::_to_dim_order_copy" in map(op_name, program.graph.nodes)


@pytest.mark.parametrize("zero_point", [-128, -3, 0, 17])
@pytest.mark.parametrize("scale", [1.0, 0.5, 0.0625, 2.0**-10])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_every_code_is_truncated_as_pytorch_does_and_twice_equals_once(scale, zero_point, dtype):
    program, codes = cast_of(scale, zero_point, dtype)
    of_codes = with_casts_of_codes(program, INT8)
    given = of_codes.module()(codes)
    wanted = program.module()(codes)
    assert torch.equal(given, wanted)
    assert given.dtype == dtype
    assert of_codes is not program
    assert with_casts_of_codes(of_codes, INT8) is of_codes


@pytest.mark.parametrize(
    "case",
    [(0.06,), (0.75,), (2.0,), (2.0**-17,), (0.5, 0, torch.int8), (0.5, 0, torch.int32, torch.int16)],
    ids=["no power of 2", "one and a half", "above 1", "too fine", "to 8 bits", "of 16 bits"],
)
def test_another_cast_is_left_alone(case):
    program, _ = cast_of(*case)
    assert with_casts_of_codes(program, INT8) is program


def test_an_ethos_u55_casts_on_the_cpu():
    spec = EthosUCompileSpec("ethos-u55-128")
    _, partitioner = lower_safely(quantised(NETS["rows of a table"]), inputs(), spec, verify=False)
    refused = [each.op for each in partitioner.report.fallbacks]
    assert "dim_order_ops::_to_dim_order_copy" in refused


@FROM_1_5
def test_an_ethos_u85_reads_the_table_in_one_delegate():
    spec = EthosUCompileSpec("ethos-u85-256")
    _, partitioner = lower_safely(quantised(NETS["rows of a table"]), inputs(), spec)
    assert partitioner.report.fallbacks == ()
