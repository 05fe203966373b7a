"""Every row of the table is needed, or there would be a false alarm, and is enough."""

import planting
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from proving import delegates_of, quantized
from small import Lambda, image

from safe_arm._compat.tested_releases import executorch_version, parse
from safe_arm.verification import local, tolerances
from safe_arm.verification.evaluation import Evaluation
from safe_arm.verification.proof import prove
from safe_arm.verification.tolerances import TOLERANCES

WIDE = "TOSA-1.0+INT+int16"
#: Before 1.5 the last of the 513 entries of a 16-bit table repeats the one before it (executorch#21629).
LAST_ENTRY_REPEATED = parse(executorch_version()) < (1, 5)
#: The code of the last entry but one: above it, such a table stands still.
LAST_BUT_ONE = 32767 - 127


def matrices():
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(1, 16, 16, generator=generator) for _ in range(2))


NETS = {
    "convolution": (Lambda(lambda m, x: m.conv(x)), image()),
    "linear": (Lambda(lambda m, x: m.linear(x)), image()),
    "bmm": (Lambda(lambda m, x, y: torch.bmm(x, y)), matrices()),
    "upsample_bilinear2d": (nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), image()),
    "exp": (Lambda(lambda m, x: torch.exp(x)), image()),
    "gelu": (Lambda(lambda m, x: F.gelu(x)), image()),
    "hardsigmoid": (Lambda(lambda m, x: F.hardsigmoid(4 * x)), image()),
    "hardswish": (nn.Hardswish(), image(0, 4.0)),
    "log": (Lambda(lambda m, x: torch.log(x.abs() + 0.5)), image()),
    "reciprocal": (Lambda(lambda m, x: torch.reciprocal(x.abs() + 0.5)), image()),
    "rsqrt": (Lambda(lambda m, x: torch.rsqrt(x.abs() + 0.5)), image()),
    "sigmoid": (Lambda(lambda m, x: torch.sigmoid(4 * x)), image()),
    "acosh": (Lambda(lambda m, x: torch.acosh(x.abs() + 1.5)), image()),
    "asinh": (Lambda(lambda m, x: torch.asinh(4 * x)), image()),
    "atan": (Lambda(lambda m, x: torch.atan(4 * x)), image()),
    "cos": (Lambda(lambda m, x: torch.cos(4 * x)), image()),
    "cosh": (Lambda(lambda m, x: torch.cosh(2 * x)), image()),
    "elu": (nn.ELU(), image()),
    "erf": (Lambda(lambda m, x: torch.erf(2 * x)), image()),
    "expm1": (Lambda(lambda m, x: torch.expm1(x)), image()),
    "leaky_relu": (nn.LeakyReLU(0.1), image()),
    "log10": (Lambda(lambda m, x: torch.log10(x.abs() + 0.5)), image()),
    "log1p": (Lambda(lambda m, x: torch.log1p(x.abs())), image()),
    "pow": (Lambda(lambda m, x: torch.pow(x.abs() + 0.3, 1.5)), image()),
    "silu": (Lambda(lambda m, x: F.silu(4 * x)), image()),
    "sin": (Lambda(lambda m, x: torch.sin(4 * x)), image()),
    "sinh": (Lambda(lambda m, x: torch.sinh(2 * x)), image()),
    "tanh": (Lambda(lambda m, x: torch.tanh(4 * x)), image()),
}


@pytest.fixture(scope="module", params=TOLERANCES, ids=lambda row: row.op.removeprefix("aten::"))
def row_and_delegates(request):
    row = request.param
    net, inputs = NETS[row.op.removeprefix("aten::")]
    wide = torch.int16 in row.dtypes
    profile = WIDE if wide else "TOSA-1.0+INT"
    return row, delegates_of(quantized(net.eval(), inputs, profile, wide=wide), inputs, profile)


def standing_still(nodes, there, real=local.interpolated):
    """What a table gives whose last entry repeats the one before it."""
    given = {n: v.clamp(max=LAST_BUT_ONE) if v.dtype == torch.int16 else v for n, v in there.values.items()}
    return real(nodes, Evaluation(given))


def test_it_is_enough(row_and_delegates, monkeypatch):
    """Where stock's tables are known to be wrong in their last entry, in nothing but that."""
    if LAST_ENTRY_REPEATED:
        monkeypatch.setattr(local, "interpolated", standing_still)
    _, delegates = row_and_delegates
    assert delegates
    assert all(prove(delegate).verified for delegate in delegates)


@pytest.mark.usefixtures("by_measurement_alone")
def test_a_last_entry_that_repeats_the_one_before_it_is_not_tolerated():
    """Planted from 1.5 on; before, stock does it."""
    net, inputs = NETS["log"]
    graph_module = quantized(net.eval(), inputs, WIDE, wide=True)
    repeated = planting.data(1, lambda table: torch.cat((table[:-1], table[-2:-1])), "tosa::TABLE")
    with planting.planted("InsertTableOpsPass", repeated):
        (delegate,) = delegates_of(graph_module, inputs, WIDE)
    (culprit,) = prove(delegate).culprits
    assert "aten_log_default" in culprit.names
    assert culprit.distance.worst > 4


def test_without_it_there_is_a_false_alarm(row_and_delegates, monkeypatch):
    row, delegates = row_and_delegates
    monkeypatch.setattr(tolerances, "TOLERANCES", tuple(each for each in TOLERANCES if each != row))
    culprits = [c for delegate in delegates for c in prove(delegate).culprits]
    assert any(row.op.removeprefix("aten::") in name for culprit in culprits for name in culprit.names)
    assert all(row.interpolated or culprit.distance.worst == row.codes for culprit in culprits)


def test_every_row_says_why():
    assert all(row.reason and (row.codes > 0) != row.interpolated for row in TOLERANCES)
    assert len({row.op for row in TOLERANCES}) == len(TOLERANCES)
