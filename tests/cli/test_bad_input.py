"""Whatever the user gets wrong is one line on stderr and status 2, and leaves no file behind."""

import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import invoke, refused
from executorch.backends.arm.quantizer import get_symmetric_quantization_config

from safe_arm import SafeTOSAQuantizer
from safe_arm._compat.upstream import TosaCompileSpec


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param(
            {"target": "ethos-u55"},
            ["'ethos-u55' is not known; accepted: ethos-u55-32, ", ", vgf, "],
            id="target",
        ),
        pytest.param({"target": "vfg"}, ["'vfg' is not known; accepted: vgf, tosa, "], id="target typo"),
        pytest.param({"target": ""}, ["target '' is not known; accepted: vgf, "], id="empty target"),
        pytest.param({"target": None}, ["Missing option '--target'"], id="no target"),
        pytest.param(
            {"profile": "INT"},
            ["profile 'INT' is not known; accepted: ", "TOSA-1.0+INT, ", "TOSA-1.0+FP", "+int16"],
            id="profile",
        ),
        pytest.param({"profile": "TOSA-0.9+INT"}, ["is not known; accepted: TOSA-1.0+INT, "], id="profile version"),
        pytest.param({"profile": "TOSA-1.0+INT+INT"}, ["is not known; accepted: "], id="profile twice"),
        pytest.param(
            {"profile": "TOSA-1.0+INT+bf16"}, ["extension '+bf16' is not known", "accepted: +8k, "], id="extension"
        ),
        pytest.param(
            {"profile": "TOSA-1.0+INT+FP", "target": "ethos-u55-128"},
            ["ethos-u55-128 cannot do FP; it has TOSA-1.0+INT+int16+int4+u55, so leave --profile out"],
            id="ethos-u profile",
        ),
        pytest.param(
            {"non-fuseable": "rejct"},
            ["--non-fuseable 'rejct' is not known; accepted: reject, propagate, best"],
            id="policy",
        ),
        pytest.param(
            {"calibrate": None},
            ["TOSA-1.0+INT+FP needs a quantised model: give --calibrate", "--profile TOSA-1.0+FP"],
            id="no calibration",
        ),
        pytest.param(
            {"calibrate": None, "target": "ethos-u85-256"}, ["give --calibrate"], id="no calibration for ethos-u"
        ),
        pytest.param({"bogus": 1}, ["No such option"], id="option"),
    ],
)
def test_options(files, options, says):
    files.refuses(files.run(**options), *says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["exprot"], "command 'exprot' is not known; accepted: export, ", id="command"),
        pytest.param(["zzz"], "command 'zzz' is not known; accepted: doctor, check, export, ", id="like no command"),
        pytest.param(["--hlep"], "No such option '--hlep'. Did you mean '--help'?", id="option"),
        pytest.param(
            ["export", "--taget", "vgf"], "No such option '--taget'. Did you mean '--target'?", id="its option"
        ),
        pytest.param(["check", "--profil", "x"], "Did you mean '--profile'?", id="option cut short"),
    ],
)
def test_misspelt(arguments, says):
    refused(invoke(*arguments), says)


def _pickle(path, _):
    path.write_bytes(pickle.dumps({"weight": 1}))


def _torch_save(path, _):
    torch.save({"weight": torch.ones(2)}, path)


def _zip(path, _):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "hello")


def _truncated(path, model):
    path.write_bytes(model.read_bytes()[: model.stat().st_size // 2])


def _flipped(path, model):
    content = bytearray(model.read_bytes())
    with zipfile.ZipFile(model) as archive:
        start = next(each for each in archive.infolist() if "weight_0" in each.filename).header_offset
    content[start + 200] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(lambda path, _: None, "does not exist; save the float model with torch.export.save", id="missing"),
        pytest.param(lambda path, _: path.mkdir(), "is a directory; give the .pt2 file", id="directory"),
        pytest.param(lambda path, _: path.touch(), "is empty, so no .pt2 program; save the float model", id="empty"),
        pytest.param(lambda path, _: path.write_bytes(b"\x13\x37" * 99), "is not a zip archive, so no", id="random"),
        pytest.param(_pickle, "is a pickle, so no .pt2 program", id="pickle"),
        pytest.param(_torch_save, "is a torch.save file (weights or a pickled module)", id="torch.save"),
        pytest.param(_zip, "is a zip archive without a program", id="zip"),
        pytest.param(_truncated, "is damaged or cut short", id="truncated"),
        pytest.param(_flipped, "is damaged (checksum of ", id="flipped byte"),
        pytest.param(
            lambda path, _: path.write_bytes(b"\x40\0\0\0ET12" + bytes(99)), "which is already lowered", id="pte"
        ),
        pytest.param(
            lambda path, _: os.mkfifo(path),
            "is not a regular file",
            id="pipe",
            marks=pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here"),
        ),
    ],
)
def test_model_files(files, tmp_path, make, says):
    model = tmp_path / "bad.pt2"
    make(model, files.model)
    files.refuses(files.run(model=model), repr(str(model)), says)


def rewrite(source: Path, target: Path, change) -> Path:
    """Copy a .pt2, each member through ``change(name, bytes)``; None leaves it out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            if (content := change(name, old.read(name))) is not None:
                new.writestr(name, content)
    return target


def test_program_of_a_newer_torch(files, tmp_path):
    def newer(name, content):
        return content.replace(b'"major": ', b'"major": 9') if name.endswith("models/model.json") else content

    model = rewrite(files.model, tmp_path / "net.pt2", newer)
    files.refuses(files.run(model=model), "saved by a newer torch (", "; upgrade torch or export")


def test_program_of_an_older_torch(files, tmp_path):
    def older(name, content):
        if not name.endswith("models/model.json"):
            return content
        program = json.loads(content)
        program["schema_version"] = {"major": 7, "minor": 3}
        program["torch_version"] = "2.5.0"
        return json.dumps(program).encode()

    model = rewrite(files.model, tmp_path / "net.pt2", older)
    result = files.run(model=model)
    files.refuses(result, "it was saved by an older torch (2.5.0, schema 7.3; torch ", " reads schema 8)")
    files.refuses(result, "; export the model again with this torch")
    assert "warnings above" not in result.stderr


def test_program_torch_cannot_read(files, tmp_path):
    def broken(name, content):
        return b"{}" if name.endswith("models/model.json") else content

    model = rewrite(files.model, tmp_path / "net.pt2", broken)
    result = files.run(model=model)
    files.refuses(result, "cannot be loaded: torch ", "torch.export.save")
    assert "warnings above" not in result.stderr


def test_quantised_program(files, tmp_path):
    inputs = (torch.rand(1, 4, 8, 8), torch.rand(1, 4, 8, 8))
    quantizer = SafeTOSAQuantizer(TosaCompileSpec("TOSA-1.0+INT"))
    quantizer.set_global(get_symmetric_quantization_config())
    module = torch.export.load(files.model).module(check_guards=False)
    program = torch.export.export(quantizer.quantize_with_submodules(module, [inputs]), inputs)
    torch.export.save(program, tmp_path / "quantised.pt2")
    result = files.run("--per-tensor", "--keep-float=x", model=tmp_path / "quantised.pt2")
    useless = "leave out --calibrate, --per-tensor, --keep-float, or give the float program"
    files.refuses(result, "is quantised already (quantized_decomposed::", " and taken as it is; ", useless)
    result = files.run("--profile=TOSA-1.0+FP", model=tmp_path / "quantised.pt2", calibrate=None)
    files.refuses(result, "is quantised already (quantized_decomposed::", "computes in float; leave --profile out")


X = np.zeros((2, 1, 4, 8, 8), "float32")


def _with(value):
    array = X.copy()
    array[1, 0, 3, 7, 7] = value
    return array


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        pytest.param({"x": X}, "calibration arrays 'x' do not match the model's inputs 'x', 'y'", id="one missing"),
        pytest.param({"x": X, "z": X}, "arrays 'x', 'z' do not match the model's inputs 'x', 'y'", id="wrong name"),
        pytest.param({"x": X, "y": X, "z": X}, "'x', 'y', 'z' do not match", id="one too many"),
        pytest.param({"arr_0": X}, "'arr_0' do not match", id="one positional"),
        pytest.param({}, "holds no arrays", id="none"),
        pytest.param(
            {"x": X[..., :7], "y": X},
            "input 'x' has shape (2, 1, 4, 8, 7); it wants float32 of shape (N, 1, 4, 8, 8)",
            id="shape",
        ),
        pytest.param({"x": X[0], "y": X[0]}, "sample axis is missing, save array[None]", id="no sample axis"),
        pytest.param({"x": X[:, 0], "y": X}, "batch axis, save array[:, None]", id="no batch axis"),
        pytest.param(
            {"x": X.astype("float64"), "y": X},
            "input 'x' is float64; it wants float32: save array.astype('float32')",
            id="dtype",
        ),
        pytest.param({"x": X[:0], "y": X[:0]}, "input 'x' has no samples (N is 0)", id="no samples"),
        pytest.param({"x": X, "y": X[:1]}, "different numbers of samples: x 2, y 1", id="different N"),
        pytest.param({"x": X, "y": _with(np.nan)}, "input 'y' has a NaN or an infinity in sample 1", id="nan"),
        pytest.param({"x": _with(-np.inf), "y": X}, "input 'x' has a NaN or an infinity in sample 1", id="infinity"),
        pytest.param({"x": np.array([None, {}]), "y": X}, "is no readable .npz", id="objects"),
    ],
)
def test_calibration_arrays(files, tmp_path, arrays, says):
    np.savez(tmp_path / "bad.npz", **arrays)
    files.refuses(files.run(calibrate=tmp_path / "bad.npz"), says)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(lambda path: None, "does not exist; write it with numpy.savez", id="missing"),
        pytest.param(lambda path: path.mkdir(), "is not a regular file", id="directory"),
        pytest.param(lambda path: path.touch(), "is no readable .npz", id="empty"),
        pytest.param(lambda path: path.write_bytes(b"\x13\x37" * 99), "is no readable .npz", id="random"),
        pytest.param(lambda path: path.write_bytes(pickle.dumps({})), "is no readable .npz", id="pickle"),
        pytest.param(lambda path: np.save(path.open("wb"), X), "it holds a single array (.npy)", id="npy"),
        pytest.param(lambda path: _zip(path, None), "is a zip archive with more than .npy arrays in it", id="zip"),
    ],
)
def test_calibration_files(files, tmp_path, make, says):
    data = tmp_path / "bad.npz"
    make(data)
    files.refuses(files.run(calibrate=data), repr(str(data)), says)


def test_sample_the_model_fails_on(files, tmp_path, save):
    model = save(torch.nn.Embedding(4, 2), (torch.zeros(1, 3, dtype=torch.int64),), tmp_path / "embedding.pt2")
    np.savez(tmp_path / "data.npz", input=np.array([[[0, 1, 2]], [[3, 4, 5]]]))
    result = files.run(model=model, calibrate=tmp_path / "data.npz")
    assert result.exit_code == 2, result.stderr
    assert "Error: the model fails on calibration sample 1: IndexError: " in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("output", "says"),
    [
        pytest.param("missing/net.pte", "does not exist; create it or give another -o", id="no directory"),
        pytest.param(".", "is a directory; give the name of a file in it", id="directory"),
        pytest.param("file/net.pte", "does not exist; create it", id="file as directory"),
        pytest.param("file", "is also an input; give another -o", id="over the model"),
        pytest.param("/dev/null", "is no regular file; give another name", id="device"),
        pytest.param("net.onnx", "has to end in .pte, the suffix of an ExecuTorch program; give -o ", id="onnx"),
        pytest.param("net.pt2", "has to end in .pte, the suffix of an ExecuTorch program; give -o ", id="pt2"),
        pytest.param("/proc/net.pte", "'/proc' is not writable", id="not writable"),
    ],
)
def test_output(files, tmp_path, output, says):
    (tmp_path / "file").write_bytes(files.model.read_bytes())
    if output.startswith("/") and not Path(output).parent.is_dir():
        pytest.skip(f"no {Path(output).parent} here")
    files.refuses(files.run(model=tmp_path / "file", output=tmp_path / output), says)
    assert (tmp_path / "file").read_bytes() == files.model.read_bytes()
