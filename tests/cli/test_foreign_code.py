"""What of a .pt2 file runs when torch loads it: which of it is refused, and which of it is not (docs/security.md)."""

import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch

from safe_arm.cli.foreign_code import code_in, tensors_only


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.constant = torch.tensor([1.0])

    def forward(self, x):
        return torch.relu(self.conv(x)) * self.constant


@pytest.fixture(scope="module")
def good(tmp_path_factory, save) -> dict[str, bytes]:
    """The members of a sound file whose width is dynamic, without their directory."""
    path = tmp_path_factory.mktemp("good") / "net.pt2"
    width = torch.export.Dim("width", min=8, max=64)
    save(Net(), (torch.rand(1, 3, 8, 16),), path, dynamic_shapes={"x": {3: width}})
    with zipfile.ZipFile(path) as archive:
        assert code_in(archive) == ""
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


MODEL = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"


def member(files, marker, name):
    stream = io.BytesIO()
    torch.save(Payload(marker), stream)
    return {name: stream.getvalue()}


def pickled(files, marker, config, name, payload):
    """Say that a payload is pickled, and pickle another one."""
    described = json.loads(files[config])
    described["config"][name]["use_pickle"] = True
    return {**member(files, marker, payload), config: json.dumps(described).encode()}


def other_constant(files, marker, name):
    described = json.loads(files[CONSTANTS])
    entry = {"path_name": name, "is_param": False, "use_pickle": True, "tensor_meta": None}
    described["config"]["constant"] = entry
    return {CONSTANTS: json.dumps(described).encode(), f"data/constants/{name}": pickle.dumps(Payload(marker))}


def text(files, marker, old, new):
    """Replace a JSON string of the program; ``{}`` in the new one is Python source that makes the marker."""
    source = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    assert json.dumps(old).encode() in files[MODEL]
    planted = json.dumps(new.replace("{}", source)).encode()
    return {MODEL: files[MODEL].replace(json.dumps(old).encode(), planted)}


def also(files, marker, name, content=b""):
    return {name: content}


SAFE_UNPICKLER = "pickled Python objects among its tensors or example inputs"
OBJECT = "holds a pickled Python object ('constant')"
#: What to change and how, whether stock runs it, and what we say; an empty text for a place that is not refused.
PLACES = {
    "sample inputs": (member, ["data/sample_inputs/model.pt"], True, SAFE_UNPICKLER),
    "weight": (pickled, [WEIGHTS, "conv.weight", "data/weights/weight_0"], True, SAFE_UNPICKLER),
    "constant": (pickled, [CONSTANTS, "constant", "data/constants/tensor_0"], True, SAFE_UNPICKLER),
    "older weights": (member, ["data/weights/model.pt"], True, SAFE_UNPICKLER),
    "older constants": (member, ["data/constants/model.pt"], True, SAFE_UNPICKLER),
    "opaque constant": (other_constant, ["opaque_obj_0"], True, OBJECT),
    "TorchBind constant": (other_constant, ["custom_obj_0"], False, OBJECT),
    "compiled code": (also, ["data/aotinductor/model/model.so"], False, "holds compiled code"),
    "second description": (also, [MODEL.upper()], False, "holds two members of one name"),
    "damaged description of weights": (also, [WEIGHTS, b"{"], False, "has a damaged description"),
    "description that is no JSON": (also, [MODEL, b"{"], False, "cannot be loaded: torch "),
    "size": (text, ["Symbol('s0', positive=True, integer=True)", "{}"], True, ""),
    "name of an input": (text, ["x", "x={}"], True, ""),
}


@pytest.fixture
def place(request, good, tmp_path):
    """A file with a payload in one place, and the marker that is there once it has run."""
    path, marker = tmp_path / "net.pt2", tmp_path / "marker"
    change, arguments, *_ = PLACES[request.param]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**good, **change(good, marker, *arguments)}.items():
            archive.writestr(f"net/{name}", content)
    return path, marker


@pytest.mark.parametrize("place", [name for name, (*_, runs, _) in PLACES.items() if runs], indirect=True)
def test_stock_runs_it(place):
    path, marker = place
    try:
        torch.export.load(path)
    except Exception:
        assert marker.exists()  # too late
    assert marker.exists()


@pytest.mark.parametrize(
    ("place", "says"), [(name, says) for name, (*_, says) in PLACES.items() if says], indirect=["place"]
)
def test_we_refuse_it(place, says, files):
    path, marker = place
    files.refuses(model=path, says=says)
    assert not marker.exists()


def test_the_environment_is_as_before(monkeypatch):
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    monkeypatch.delenv(name, raising=False)
    with tensors_only():
        assert os.environ[name] == "1"
    assert name not in os.environ
    monkeypatch.setenv(name, "0")
    with pytest.raises(KeyError), tensors_only():
        raise KeyError
    assert os.environ[name] == "0"
