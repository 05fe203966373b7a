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
def good(tmp_path_factory) -> dict[str, bytes]:
    """The members of a sound file whose width is dynamic, without their directory."""
    path = tmp_path_factory.mktemp("good") / "net.pt2"
    width = torch.export.Dim("width", min=8, max=64)
    torch.export.save(
        torch.export.export(Net().eval(), (torch.rand(1, 3, 8, 16),), dynamic_shapes={"x": {3: width}}), path
    )
    with zipfile.ZipFile(path) as archive:
        assert code_in(archive) == ""
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


MODEL, WEIGHTS, CONSTANTS = (
    "models/model.json", "data/weights/model_weights_config.json", "data/constants/model_constants_config.json"
)  # fmt: skip


def member(name):
    def change(files, marker):
        stream = io.BytesIO()
        torch.save(Payload(marker), stream)
        return {**files, name: stream.getvalue()}

    return change


def pickled(config, name, payload):
    """Say that a payload is pickled, and pickle another one."""

    def change(files, marker):
        described = json.loads(files[config])
        described["config"][name]["use_pickle"] = True
        return {**member(payload)(files, marker), config: json.dumps(described).encode()}

    return change


def other_constant(prefix):
    def change(files, marker):
        described = json.loads(files[CONSTANTS])
        described["config"]["constant"] = {
            "path_name": f"{prefix}0", "is_param": False, "use_pickle": True, "tensor_meta": None
        }  # fmt: skip
        path = f"data/constants/{prefix}0"
        return {**files, CONSTANTS: json.dumps(described).encode(), path: pickle.dumps(Payload(marker))}

    return change


def text(old, new):
    """Replace a JSON string of the program; ``{}`` in the new one is Python source that makes the marker."""

    def change(files, marker):
        source = f"__import__('pathlib').Path({str(marker)!r}).touch()"
        assert json.dumps(old).encode() in files[MODEL]
        planted = json.dumps(new.replace("{}", source)).encode()
        return {**files, MODEL: files[MODEL].replace(json.dumps(old).encode(), planted)}

    return change


def also(name, content=b""):
    return lambda files, marker: {**files, name: content}


SAFE_UNPICKLER = "pickled Python objects among its tensors or example inputs"
#: What to change, whether stock runs it, and what we say; an empty text for a place that is not refused.
PLACES = {
    "sample inputs": (member("data/sample_inputs/model.pt"), True, SAFE_UNPICKLER),
    "weight": (pickled(WEIGHTS, "conv.weight", "data/weights/weight_0"), True, SAFE_UNPICKLER),
    "constant": (pickled(CONSTANTS, "constant", "data/constants/tensor_0"), True, SAFE_UNPICKLER),
    "older weights": (member("data/weights/model.pt"), True, SAFE_UNPICKLER),
    "older constants": (member("data/constants/model.pt"), True, SAFE_UNPICKLER),
    "opaque constant": (other_constant("opaque_obj_"), True, "holds a pickled Python object ('constant')"),
    "TorchBind constant": (other_constant("custom_obj_"), False, "holds a pickled Python object ('constant')"),
    "compiled code": (also("data/aotinductor/model/model.so"), False, "holds compiled code"),
    "second description": (also(MODEL.upper()), False, "holds two members of one name"),
    "damaged description of weights": (also(WEIGHTS, b"{"), False, "has a damaged description"),
    "description that is no JSON": (also(MODEL, b"{"), False, "cannot be loaded: torch "),
    "size": (text("Symbol('s0', positive=True, integer=True)", "{}"), True, ""),
    "name of an input": (text("x", "x={}"), True, ""),
}


@pytest.fixture
def place(request, good, tmp_path):
    """A file with a payload in one place, and the marker that is there once it has run."""
    path, marker = tmp_path / "net.pt2", tmp_path / "marker"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in PLACES[request.param][0](good, marker).items():
            archive.writestr(f"net/{name}", content)
    return path, marker


@pytest.mark.parametrize("place", [name for name, (_, runs, _) in PLACES.items() if runs], indirect=True)
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
    files.refuses(files.run(model=path), says)
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
