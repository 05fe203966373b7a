"""``safe-arm check --stock``: stock's own quantiser and partitioner on the same net, proven as ours is."""

import io
import json
from pathlib import Path

import faults
import numpy as np
import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
from executorch.backends.arm.quantizer import EthosUQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import RELEASE, delegates, lower_program, quantize, tosa
from schemas import check_document

from safe_arm.cli import stock_export
from safe_arm.cli.progress import Steps
from safe_arm.cli.quantising import Loaded
from safe_arm.cli.request import Request
from safe_arm.cli.stock_export import stock_result
from safe_arm.cli.targets import profile_for


@pytest.fixture(scope="module")
def quantised(conv_relu_cat):
    """The net as stock's quantiser of an Ethos-U55 leaves it, which every profile with INT can lower."""
    model, data = conv_relu_cat
    inputs = tuple(torch.from_numpy(np.load(data)[name][0]) for name in "xy")
    spec = EthosUCompileSpec("ethos-u55-128")
    module = quantize(torch.export.load(model).module(), inputs, spec, quantizer_class=EthosUQuantizer)
    return torch.export.export(module, inputs)


@pytest.fixture
def result(quantised):
    """Export a program with stock; the quantised one unless it is said."""

    def run(program=quantised, target="tosa", profile=None, samples=None, **options):
        request = Request(Path("net.pt2"), target, profile_for(target, profile), "reject", **options)
        return stock_result(Loaded(request, program, samples), Steps(io.StringIO()))

    return run


#: Stock fuses the relu away from 1.5 on; before, it delegates the island and computes it.
LOSES_A_RELU = RELEASE >= (1, 5)


@pytest.mark.skipif(not LOSES_A_RELU, reason="stock computes the relu before 1.5")
def test_a_relu_that_stock_loses_is_wrong(result):
    found = result()
    assert found.verdict == "wrong"
    assert (found.delegates, found.verified, found.operators, found.operators_delegated) == (1, 0, 4, 4)
    assert (found.share_delegated, found.error, found.vela_cycles) == (1, "", None)
    assert found.codes_off > 10
    assert found.reasons[0].startswith("tag")
    assert "aten::relu" in found.reasons[0]
    assert "differs from the quantised graph by up to" in found.reasons[0]


def test_what_stock_does_right_is_verified(result):
    torch.manual_seed(0)
    inputs = (torch.rand(1, 4, 8, 8),)
    program = torch.export.export(torch.nn.Conv2d(4, 4, 1).eval(), inputs)
    found = result(program, samples=[inputs])
    assert (found.verdict, found.verified, found.codes_off, found.reasons) == ("verified", 1, 0, ())


def test_what_stock_raises_while_lowering_is_its_result(result):
    with faults.visitor_raising("tosa.CONCAT.default"):
        found = result()
    assert found.verdict == "crashes"
    assert found.error == "cannot lower for tosa: InjectedError: the injected fault"
    assert (found.delegates, found.verified, found.codes_off) == (0, None, None)


def test_what_stock_raises_while_quantising_is_its_result(result, conv_relu_cat):
    program = torch.export.load(conv_relu_cat[0])
    found = result(program, samples=[(torch.rand(1, 3, 8, 8), torch.rand(1, 4, 8, 8))])
    assert found.verdict == "crashes"
    assert found.error.startswith("cannot quantise: RuntimeError: ")


@pytest.mark.parametrize("target", ["ethos-u55-128", "vgf"])
def test_what_a_compiler_compiles_is_verified_by_its_tosa_graph(result, target):
    found = result(target=target)
    expected = ("wrong", 0) if LOSES_A_RELU else ("verified", 1)
    assert (found.delegates, found.verdict, found.verified) == (1, *expected)
    assert found.vela_cycles is None if target == "vgf" else found.vela_cycles > 0


@pytest.mark.parametrize("target", ["tosa", "ethos-u55-128"])
def test_the_delegates_are_byte_for_byte_stocks(result, quantised, monkeypatch, target):
    managers = []
    lowered = stock_export._lowered
    monkeypatch.setattr(stock_export, "_lowered", lambda *given: managers.append(lowered(*given)) or managers[0])
    unverified = result(target=target, verify=False)
    assert (unverified.verdict, unverified.verified, unverified.codes_off) == ("not verified", None, None)
    partitioner = TOSAPartitioner(tosa("TOSA-1.0+INT+FP"))
    if target == "ethos-u55-128":
        partitioner = EthosUPartitioner(EthosUCompileSpec(target))
    assert delegates(managers[0]) == delegates(lower_program(quantised, partitioner))


def test_a_float_profile_needs_no_quantiser(result, conv_relu_cat):
    found = result(torch.export.load(conv_relu_cat[0]), profile="TOSA-1.0+FP")
    assert (found.verdict, found.codes_off) == ("verified", None)


def test_the_document_has_it_beside_ours(files):
    result = files.check("--stock", "--json")
    document = json.loads(result.stdout)
    check_document(document, "cli/check")
    assert document["stock"]["verdict"] == ("wrong" if LOSES_A_RELU else "verified")
    assert document["comparison"]["propagate"]["verified"] == 1
    steps = [" ".join(line.split()[:5]) for line in result.stderr.splitlines()[-3:]]
    assert steps == ["quantise with stock", "lower for tosa with stock", "verify stock's delegates"]
