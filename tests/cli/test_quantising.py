"""How a model is quantised is said on the command line, and a quantised one is taken as it is."""

import json

import numpy as np
import pytest
import torch
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

from safe_arm._compat.upstream import TosaCompileSpec, TOSAQuantizer


def nodes(path, op):
    return [node for node in json.loads(path.read_text())["nodes"] if node["op"] == f"quantized_decomposed::{op}"]


@pytest.fixture
def export(files, tmp_path):
    """Export with some options; return the record of it."""

    def run(*options, **replaced):
        report = tmp_path / "report.json"
        files.run(f"--report={report}", "--profile=TOSA-1.0+INT+int16", *options, **replaced)
        return report

    return run


@pytest.mark.parametrize(("bits", "dtype"), [("8", "int8"), ("16", "int16")])
def test_the_bits_of_activations(export, bits, dtype):
    inputs = nodes(export(f"--activations={bits}", "--no-verify"), "quantize_per_tensor")
    assert {node["qparams"]["dtype"] for node in inputs} == {dtype}


@pytest.mark.parametrize(("option", "many"), [((), 2), (("--per-tensor",), 0)], ids=["per channel", "per tensor"])
def test_how_weights_are_scaled(export, option, many):
    per_channel = nodes(export(*option, "--no-verify"), "dequantize_per_channel")
    weights = [node for node in per_channel if node["qparams"]["dtype"] == "int8"]
    assert len(weights) == many


@pytest.mark.parametrize("name", ["last", "first", "Conv2d"])
def test_a_module_is_kept_float(export, name):
    record = json.loads(export(f"--keep-float={name}", "--no-verify", "--non-fuseable=propagate").read_text())
    fallbacks = {node["name"] for node in record["nodes"] if node["op"] == "aten::convolution" and not node["delegate"]}
    first, last = "aten_convolution_default", "aten_convolution_default_1"
    assert fallbacks == {"first": {first}, "last": {last}, "Conv2d": {first, last}}[name]
    told = {node["name"]: node["left_float"] for node in record["nodes"] if node["left_float"]}
    paths = {first: "first", last: "last"}
    assert told == {node: f"--keep-float {paths[node]}" for node in fallbacks}


@pytest.fixture(scope="module", params=["calibrated", "trained"])
def quantised(conv_relu_cat, tmp_path_factory, request):
    """A program of PT2E's own: prepared, calibrated or trained, converted with the stock quantiser, and saved."""
    model, data = conv_relu_cat
    quantizer = TOSAQuantizer(TosaCompileSpec("TOSA-1.0+INT"))
    trained = request.param == "trained"
    quantizer.set_global(get_symmetric_quantization_config(is_qat=trained))
    prepared = (prepare_qat_pt2e if trained else prepare_pt2e)(
        torch.export.load(model).module(check_guards=False), quantizer
    )
    arrays = np.load(data)
    inputs = [tuple(map(torch.from_numpy, row)) for row in zip(arrays["x"], arrays["y"], strict=True)]
    for each in inputs:
        prepared(*each)
    path = tmp_path_factory.mktemp("quantised") / "net.pt2"
    torch.export.save(torch.export.export(convert_pt2e(prepared), inputs[0]), path)
    return path


def test_a_single_sample_is_counted_in_the_singular(files, conv_relu_cat, tmp_path):
    arrays = np.load(conv_relu_cat[1])
    np.savez(tmp_path / "one.npz", **{name: array[:1] for name, array in arrays.items()})
    result = files.run("--no-verify", "--allow-empty", calibrate=tmp_path / "one.npz")
    assert "calibrate on 1 sample\n" in result.stderr


def test_a_quantised_program_is_taken_as_it_is(files, quantised):
    result = files.run(model=quantised, calibrate=None)
    assert "calibrate" not in result.stderr
    assert "operators       2 of 4 delegated" in result.stdout
    assert "1 of 1 delegate against the quantised graph" in result.stdout
    assert [line.split()[0] for line in result.stderr.splitlines()] == ["load", "lower", "write"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--calibrate=data.npz"], "leave out --calibrate, or give the float program"),
        (["--activations=8", "--per-tensor"], "leave out --activations, --per-tensor, or"),
        (["--keep-float=x"], "leave out --keep-float, or"),
        (["--accuracy"], "leave out --accuracy, or give the float program"),
        (["--profile=TOSA-1.0+FP"], "TOSA-1.0+FP computes in float; leave --profile out, or give the float program"),
    ],
    ids=["data", "how", "what", "accuracy", "profile"],
)
def test_what_would_quantise_it_is_refused(files, quantised, options, says):
    files.refuses(*options, model=quantised, calibrate=None, says=["is quantised already (quantized_dec", says])


def test_an_ethos_u_has_16_bits(files):
    files.run("--activations=16", "--no-verify", target="ethos-u55-128")
