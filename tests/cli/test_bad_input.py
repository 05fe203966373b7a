"""Whatever the user gets wrong is one line on stderr and status 2, and leaves no file behind."""

import json
import os
import pickle
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import invoke

#: Command lines beside the model, the data and the output, without an option behind ``!``, and what is said of them.
COMMANDS = {
    "exprot": "command 'exprot' is not known; accepted: export, ",
    "zzz": "command 'zzz' is not known; accepted: doctor, check, export, ",
    "--hlep": "No such option '--hlep'. Did you mean '--help'?",
    "export --bogus=1": "No such option",
    "export --taget vgf": "No such option '--taget'. Did you mean '--target'?",
    "check --profil x": "Did you mean '--profile'?",
    "check --output=net.pte": "No such option '--output'",
    "check --strict=1": "No such option '--strict'",
    "export -q -v": "--quiet and --verbose exclude each other; give one of them",
    "check --json -v": "--json and --verbose exclude each other",
    "check --json --profile=INT": "profile 'INT' is not known",
    "check --stock --recipe=r.json": "--stock uses stock's quantiser, which takes no recipe; leave one of them out",
    "check --report=report.xml": "report 'report.xml' has to end in .json or .html",
    "check --report=missing/report.json": "does not exist; create it or give another --report",
    "check --report=.": "is a directory",
    "check --report=r.json --report=r.json": "is given twice",
    "check --non-fuseable=best --no-verify": "leave --no-verify out, or give --non-fuseable reject or propagate",
    "check --fail-under=abc": "Invalid value for '--fail-under': 'abc' is not a valid number.",
    "check --fail-under=101": "101.0 is not in the range 0<=x<=100",
    "export !output": "Missing option '-o' / '--output'. Give -o OUT.pte",
    "export --recipe={files.data}": "cannot be read: it is not a text file; write one with safe-arm tune",
    "export --repro-dir={files.data}": "data.npz' is a file; give another --repro-dir",
    "export --repro-dir={files.data}/there": "there' cannot be a directory: ",
    "export --report={files.output} --output={files.output}": "net.pte' is given twice; give another --report",
    "repro --output={files.data}": "data.npz' is a file; give another -o",
    "export --non-fuseable=rejct": "--non-fuseable 'rejct' is not known; accepted: reject, propagate, best",
    "export --calibrate=random": ["--calibrate random is for safe-arm check, a first look: ", "--calibrate DATA.npz"],
    "export !target": "Missing option '--target'",
    "export !calibrate": ["TOSA-1.0+INT+FP needs a quantised model: give --calibrate", "--profile TOSA-1.0+FP"],
    "check !calibrate": ["TOSA-1.0+INT+FP needs a quantised model: give --calibrate", ", or --calibrate random for a"],
    "export !calibrate --accuracy --profile=TOSA-1.0+FP": "--accuracy compares a quantised model with the float one",
    "export !calibrate --min-sqnr=30 --profile=TOSA-1.0+FP": "--min-sqnr compares a quantised model with the float",
    "export --target=ethos-u55": ["'ethos-u55' is not known; accepted: ethos-u55-32, ", ", vgf, "],
    "export --target=": "target '' is not known; accepted: vgf, ",
    "export --profile=INT": ["profile 'INT' is not known; accepted: ", "TOSA-1.0+INT, ", "TOSA-1.0+FP", "+int16"],
    "export --profile=TOSA-0.9+INT": "is not known; accepted: TOSA-1.0+INT, ",
    "export --profile=TOSA-1.0+INT+INT": "is not known; accepted: ",
    "export --profile=TOSA-1.0+INT+bf16": ["extension '+bf16' is not known", "accepted: +8k, "],
    "export --profile=TOSA-1.0+INT+FP --target=ethos-u55-128": (
        "ethos-u55-128 cannot do FP; it has TOSA-1.0+INT+int16+int4+u55, so leave --profile out"
    ),
    "export --profile=TOSA-1.0+INT --target=ethos-u55-128": "ethos-u55-128 has a profile of its own; it has TOSA-1.0",
    "export --activations=4": "--activations '4' is not known; accepted: 8, 16",
    "export --activations=16": "16 needs the int16 extension, which TOSA-1.0+INT+FP does not have; give",
    "export --activations=16 --profile=TOSA-1.0+FP": "TOSA-1.0+FP is a float profile; leave one of them out",
    "export --keep-float=frist": ["--keep-float 'frist' is no module or module type of the model", "; similar: first"],
    "export --io=int16": "--io 'int16' is not known; accepted: int8, float",
    "export --io=int8 --profile=TOSA-1.0+FP": "--io int8 needs a quantised model, and TOSA-1.0+FP is a float profile",
    "export --io=int8 --activations=16 --profile=TOSA-1.0+INT+int16": "--io int8 needs 8-bit activations",
    "export --tolerance=1 --no-verify": "--tolerance is for the verification, which --no-verify leaves out",
    "export --tolerance=-1": "-1 is not in the range x>=0",
    "export --operators={files.data}": "is also an input; give another --operators",
    "export --max-flash=big": "--max-flash 'big' is no amount of memory",
    "export --max-sram=1K --target=vgf": "--max-sram: for an Ethos-U only",
    "export --memory-mode=Sram_Only --config=x.ini --target=vgf": "--memory-mode, --config: for an Ethos-U only",
}


@pytest.mark.parametrize("line", COMMANDS)
def test_options(files, monkeypatch, line):
    monkeypatch.chdir(files.output.parent)
    command, *words = line.format(files=files).split()
    left_out = {word[1:]: None for word in words if word.startswith("!")}
    options = [word for word in words if not word.startswith("!")]
    files.refuses(*options, says=COMMANDS[line], command=command, **left_out)


@pytest.mark.parametrize("command", ["check", "export", "tune", "run", "repro", "verify-pte"])
def test_a_command_alone_names_the_argument_that_it_wants(command):
    result = invoke(command, status=2)
    assert re.fullmatch(r"Error: Missing argument '[\w.]+'\.\n", result.stderr), result.stderr
    assert result.stdout == ""


def _zip(path, _):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "hello")


def _flipped(path, model):
    content = bytearray(model.read_bytes())
    with zipfile.ZipFile(model) as archive:
        start = next(each for each in archive.infolist() if "weight_0" in each.filename).header_offset
    content[start + 200] ^= 0xFF
    path.write_bytes(content)


MODELS = {
    "missing": (lambda path, _: None, "does not exist; save the float model with torch.export.save"),
    "directory": (lambda path, _: path.mkdir(), "is a directory; give the .pt2 file"),
    "empty": (lambda path, _: path.touch(), "is empty, so it is not a .pt2 program; save the float model"),
    "random": (lambda path, _: path.write_bytes(b"\x13\x37" * 99), "is not a zip archive, so it is not a"),
    "pickle": (
        lambda path, _: path.write_bytes(pickle.dumps({"weight": 1})),
        "is a pickle, so it is not a .pt2 program",
    ),
    "torch.save": (lambda path, _: torch.save({"weight": torch.ones(2)}, path), "is a torch.save file"),
    "zip": (_zip, "is a zip archive without a program"),
    "truncated": (lambda path, model: path.write_bytes(model.read_bytes()[:4000]), "is damaged or cut short"),
    "flipped byte": (_flipped, "is damaged (checksum of "),
    "pte": (lambda path, _: path.write_bytes(b"\x40\0\0\0ET12" + bytes(99)), "which is already lowered"),
    "pipe": (lambda path, _: os.mkfifo(path), "is not a regular file"),
}
DATA = {
    "no data": (lambda path, _: None, "does not exist; write it with numpy.savez"),
    "directory of data": (lambda path, _: path.mkdir(), "is a directory"),
    "pickled data": (lambda path, _: path.write_bytes(pickle.dumps({})), "is not a readable .npz"),
    "npy": (lambda path, _: np.save(path.open("wb"), np.zeros(2)), "it holds a single array (.npy)"),
    "zipped text": (_zip, "is a zip archive with more than .npy arrays in it"),
}


@pytest.mark.parametrize("name", [*MODELS, *DATA])
def test_model_and_calibration_files(files, tmp_path, name):
    make, says = (MODELS | DATA)[name]
    path = tmp_path / "bad"
    make(path, files.model)
    files.refuses(says=[repr(str(path)), says], **{"model" if name in MODELS else "calibrate": path})


def test_a_script_is_no_model(files, tmp_path):
    path = tmp_path / "train.py"
    path.touch()
    files.refuses(
        says=[f"is a Python script; run it with safe_arm's classes: safe-arm run {path}, or save"], model=path
    )


NEWER = {"schema_version": {"major": 98, "minor": 1}}
OLDER = {"schema_version": {"major": 7, "minor": 3}, "torch_version": "2.5.0"}
OF_ANOTHER_TORCH = {
    "newer": (NEWER, ["saved by a newer torch (", "; upgrade torch or export"]),
    "older": (OLDER, ["by an older torch (2.5.0, schema 7.3; torch ", " reads schema 8); export the model again"]),
    "unreadable": (None, ["cannot be loaded: torch ", "torch.export.save"]),
}


@pytest.mark.parametrize(("change", "says"), OF_ANOTHER_TORCH.values(), ids=OF_ANOTHER_TORCH)
def test_a_program_of_another_torch(files, tmp_path, change, says):
    with zipfile.ZipFile(files.model) as old, zipfile.ZipFile(tmp_path / "net.pt2", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("models/model.json"):
                content = json.dumps(json.loads(content) | change if change else {})
            new.writestr(name, content)
    result = files.refuses(model=tmp_path / "net.pt2", says=says)
    assert "warnings above" not in result.stderr


X = np.zeros((2, 1, 4, 8, 8), "float32")
NAN, INFINITY = (np.concatenate((X[:1], X[1:] + value)) for value in (np.nan, -np.inf))
ARRAYS = {
    "one missing": ({"x": X}, "calibration arrays 'x' do not match the model's inputs 'x', 'y'"),
    "one too many": ({"x": X, "y": X, "z": X}, "'x', 'y', 'z' do not match"),
    "one positional": ({"arr_0": X}, "'arr_0' do not match"),
    "none": ({}, "holds no arrays"),
    "shape": ({"x": X[..., :7], "y": X}, "'x' has shape (2, 1, 4, 8, 7); expected float32 of shape (N, 1, 4, 8, 8)"),
    "no sample axis": ({"x": X[0], "y": X[0]}, "sample axis is missing, save array[None]"),
    "no batch axis": ({"x": X[:, 0], "y": X}, "batch axis, save array[:, None]"),
    "dtype": ({"x": X.astype("float64"), "y": X}, "'x' is float64; expected float32: save array.astype('float32')"),
    "no samples": ({"x": X[:0], "y": X[:0]}, "input 'x' has no samples (N is 0)"),
    "different N": ({"x": X, "y": X[:1]}, "different numbers of samples: x 2, y 1"),
    "nan": ({"x": X, "y": NAN}, "input 'y' has a NaN or an infinity in sample 1"),
    "infinity": ({"x": INFINITY, "y": X}, "input 'x' has a NaN or an infinity in sample 1"),
    "objects": ({"x": np.array([None, {}]), "y": X}, "is not a readable .npz"),
}


@pytest.mark.parametrize(("arrays", "says"), ARRAYS.values(), ids=ARRAYS)
def test_calibration_arrays(files, tmp_path, arrays, says):
    np.savez(tmp_path / "bad.npz", **arrays)
    files.refuses(calibrate=tmp_path / "bad.npz", says=says)


def test_sample_the_model_fails_on(files, tmp_path, save):
    model = save(torch.nn.Embedding(4, 2), (torch.zeros(1, 3, dtype=torch.int64),), tmp_path / "embedding.pt2")
    np.savez(tmp_path / "data.npz", input=np.array([[[0, 1, 2]], [[3, 4, 5]]]))
    result = files.run(model=model, calibrate=tmp_path / "data.npz", status=2)
    assert "Error: the model fails on calibration sample 1: IndexError: " in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("output", "says"),
    [
        pytest.param("missing/net.pte", "does not exist; create it or give another -o", id="no directory"),
        pytest.param(".", "is a directory; give the name of a file in it", id="directory"),
        pytest.param("file/net.pte", "does not exist; create it", id="file as directory"),
        pytest.param("file", "is also an input; give another -o", id="over the model"),
        pytest.param("/dev/null", "is not a regular file; give another name", id="device"),
        pytest.param("net.onnx", "has to end in .pte, the suffix of an ExecuTorch program; give -o ", id="onnx"),
        pytest.param("net.pt2", "has to end in .pte, the suffix of an ExecuTorch program; give -o ", id="pt2"),
        pytest.param("/proc/net.pte", "'/proc' is not writable", id="not writable"),
    ],
)
def test_output(files, tmp_path, output, says):
    (tmp_path / "file").write_bytes(files.model.read_bytes())
    if output.startswith("/") and not Path(output).parent.is_dir():
        pytest.skip(f"no {Path(output).parent} here")
    files.refuses(model=tmp_path / "file", output=tmp_path / output, says=says)
    assert (tmp_path / "file").read_bytes() == files.model.read_bytes()
