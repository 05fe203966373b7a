"""No code from a .pt2 file runs: each place where torch would run it is tried, with stock and with ours."""

import io
import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from safe_arm.cli.foreign_code import code_in, tensors_only

ROOT = Path(__file__).parents[2]


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def saved(marker: Path) -> bytes:
    stream = io.BytesIO()
    torch.save(Payload(marker), stream)
    return stream.getvalue()


def source(marker: Path) -> str:
    return f"__import__('pathlib').Path({str(marker)!r}).touch()"


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
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


MODEL, WEIGHTS, CONSTANTS = (
    "models/model.json", "data/weights/model_weights_config.json", "data/constants/model_constants_config.json"
)  # fmt: skip


def member(name):
    return lambda files, marker: {**files, name: saved(marker)}


def pickled(config, name, payload):
    """Say that a payload is pickled, and pickle another one."""

    def change(files, marker):
        described = json.loads(files[config])
        described["config"][name]["use_pickle"] = True
        return {**files, config: json.dumps(described).encode(), payload: saved(marker)}

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
        given = json.dumps(new.replace("{}", source(marker))).encode()
        assert json.dumps(old).encode() in files[MODEL]
        return {name: content.replace(json.dumps(old).encode(), given) for name, content in files.items()}

    return change


def guard(code):
    """Plant a guard on the sizes of inputs; ``{}`` in it is Python source that makes the marker."""

    def change(files, marker):
        program = json.loads(files[MODEL])
        assert program["guards_code"] == []
        program["guards_code"].append(code.replace("{}", source(marker)))
        return {**files, MODEL: json.dumps(program).encode()}

    return change


def target(new):
    return text("torch.ops.aten.relu.default", new)


SYMBOL = "Symbol('s0', positive=True, integer=True)"
SAFE_UNPICKLER = "pickled Python objects among its tensors or example inputs"
#: What to change, whether stock runs it, and what we say.
PLACES = {
    "sample inputs": (member("data/sample_inputs/model.pt"), True, SAFE_UNPICKLER),
    "weight": (pickled(WEIGHTS, "conv.weight", "data/weights/weight_0"), True, SAFE_UNPICKLER),
    "constant": (pickled(CONSTANTS, "constant", "data/constants/tensor_0"), True, SAFE_UNPICKLER),
    "older weights": (member("data/weights/model.pt"), True, SAFE_UNPICKLER),
    "older constants": (member("data/constants/model.pt"), True, SAFE_UNPICKLER),
    "opaque constant": (other_constant("opaque_obj_"), True, "holds a pickled Python object ('constant')"),
    "TorchBind constant": (other_constant("custom_obj_"), False, "holds a pickled Python object ('constant')"),
    "size": (text(SYMBOL, "{}"), True, "holds the size"),
    "argument of a size": (text(SYMBOL, "Symbol('s0', positive={} or True)"), True, "holds the size"),
    "size that calls input": (text(SYMBOL, "input()"), False, "holds the size 'input()'"),
    "guard": (guard("{} or True"), False, "holds the guard \"__import__"),
    "guard that calls input": (guard("input() > 3"), False, "holds the guard 'input() > 3'"),
    "guard with a name that ends its message": (
        guard("L['x\\\", {}) #'].size()[0] > 3"), False, "holds the guard"
    ),
    "guard of several lines": (guard("1)\n  {}\n  (1"), False, "holds the guard"),
    "name of an input": (text("x", "x={}"), True, "holds the name \"x=__import__"),
    "name of a parameter": (text("conv.weight", "conv.w'), {}, ('"), False, "holds the name"),
    "module in the description of the arguments": (
        lambda files, marker: {
            **files,
            MODEL: files[MODEL].replace(b'\\"context\\": \\"[]\\"', rb'\"context\": \"[{\\\"__enum__\\\": 1}]\"'),
        },
        False,
        "holds a module to import in",
    ),
    "operator on files": (target("torch.ops.aten.from_file.default"), False, "holds an operator on files"),
    "function of torch": (target("torch.hub.load"), False, "cannot be loaded: torch "),
    "loader of libraries": (target("torch.ops.load_library"), False, "cannot be loaded: torch "),
    "compiled code": (
        lambda files, marker: {**files, "data/aotinductor/model/model.so": b""}, False, "holds compiled code"
    ),
    "second description": (
        lambda files, marker: {**files, MODEL.upper(): files[MODEL]}, False, "holds two members of one name"
    ),
    "description that is no JSON": (lambda files, marker: {**files, MODEL: b"{"}, False, "has a damaged description"),
}  # fmt: skip


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


@pytest.mark.parametrize(("place", "says"), [(name, PLACES[name][2]) for name in PLACES], indirect=["place"])
def test_we_refuse_it(place, says, files):
    path, marker = place
    files.refuses(files.run(model=path), says)
    assert not marker.exists()


@pytest.mark.parametrize("place", ["guard"], indirect=True)
def test_torch_runs_a_guard_with_the_module_it_makes(place, monkeypatch):
    """It makes none for a caller whose path has "executorch" in it, as that of a lane's environment may have."""
    monkeypatch.setattr("torch.export._unlift._ok_to_generate_guards_fn", lambda: True)
    path, marker = place
    program = torch.export.load(path)
    assert not marker.exists()
    module = program.module()
    module(torch.rand(1, 3, 8, 16))
    assert marker.exists()


def test_a_guard_is_refused_before_torch_is_loaded(good, tmp_path):
    path = tmp_path / "net.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in guard("__import__('os').system('true')")(good, tmp_path).items():
            archive.writestr(f"net/{name}", content)
    code = (
        "import sys\nfrom safe_arm.cli.main import cli\n"
        f"try:\n    cli(['check', {str(path)!r}, '--target=tosa', '--profile=TOSA-1.0+FP'])\n"
        "except SystemExit as end:\n    print(end.code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "2 False\n", done.stderr
    assert "holds the guard \"__import__('os').system('true')\"" in done.stderr


@pytest.mark.parametrize(
    ("guard", "plain"),
    [
        ("L['d']['a b'][0].size()[0] > 3 + 2*L['d']['k'].size()[1]", True),
        ("((6*L['x'].size()[0]) % (L['x'].size()[0] // 2)) == 0", True),
        ("max(L['flat_args'][0].size()[3], L['flat_args'][0].stride()[2] // 3) >= 1.5e-7", True),
        ("math.floor(torch.sym_float(L['k'])) != 3 and not (L['x'].storage_offset() == 0)", True),
        ("", True),
        ("L", False),
        ("L['x'].__class__", False),
        ("L['x'].size.__self__", False),
        ("L['x'].numpy().tofile('/tmp/x')", False),
        ("math.__loader__", False),
        ("torch.hub.load('a', 'b')", False),
        ("open('/tmp/x', 'w')", False),
        ("[1 for x in (1,)]", False),
        ("(lambda: 1)()", False),
        ("'text'", False),
        ('L["x"].size()[0] > 3', False),
        ("x := 3", False),
        ("1" * 100_000 + "!'", False),
        ("L['x']" + "[0]" * 30_000 + "'", False),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_a_guard_is_arithmetic_on_sizes_or_refused(guard, plain):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("net/models/model.json", json.dumps({"guards_code": [guard]}))
    assert (code_in(zipfile.ZipFile(stream)) == "") is plain


def _dictionary_of_arguments():
    class Sum(torch.nn.Module):
        def forward(self, x, *, more):
            return x + more["with a space"][0]

    x = torch.rand(2)
    return torch.export.export(Sum(), (x,), {"more": {"with a space": [x]}})


def _arithmetic_on_sizes():
    class Resize(torch.nn.Module):
        def forward(self, x):
            y = torch.nn.functional.interpolate(x, scale_factor=1.5)
            return y[..., : max(x.shape[-1] // 2, 1)], y.mean() / x.shape[-1] ** 0.5

    return torch.export.export(Resize(), (torch.rand(1, 3, 8, 9),), dynamic_shapes={"x": {3: torch.export.Dim.AUTO}})


def _guards_on_sizes():
    class Guarded(torch.nn.Module):
        def forward(self, x, more):
            y = more["a b"][0]
            if x.shape[0] % 4 != 0 or x.shape[0] * 2 + 3 == y.shape[1]:
                return x * 2
            x = x if max(x.shape[2] // 3, y.shape[1]) > 2 else x + 1
            return x.reshape(x.shape[0] // 2, -1) + y.sum()

    auto = torch.export.Dim.AUTO
    inputs, shapes = (torch.rand(8, 2, 9), {"a b": [torch.rand(2, 5)]}), ({0: auto, 2: auto}, {"a b": [{1: auto}]})
    program = torch.export.export(Guarded(), inputs, dynamic_shapes=shapes)
    assert len(program._guards_code) > 5
    return program


def _branches():
    class Branches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleDict({"conv-1": torch.nn.Conv2d(3, 3, 1)})

        def forward(self, x, p):
            return torch.cond(p, self.layers["conv-1"], torch.neg, (x,))

    return torch.export.export(Branches().eval(), (torch.rand(1, 3, 8, 8), torch.tensor(True)))


def _text_arguments():
    class Text(torch.nn.Module):
        def forward(self, x):
            return torch.einsum("bchw,bcxw->bhx", x, x)

    return torch.export.export(Text(), (torch.rand(1, 3, 8, 8),))


def _constant_with_strides():
    class Strided(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.constant = torch.rand(4, 4).t()[::2]

        def forward(self, x):
            return x + self.constant

    return torch.export.export(Strided(), (torch.rand(4),))


@pytest.mark.parametrize(
    "make",
    [
        _dictionary_of_arguments,
        _arithmetic_on_sizes,
        _guards_on_sizes,
        _branches,
        _text_arguments,
        _constant_with_strides,
    ],
)
def test_sound_programs_are_left_alone(make, tmp_path):
    torch.export.save(make(), tmp_path / "net.pt2")
    with zipfile.ZipFile(tmp_path / "net.pt2") as archive:
        assert code_in(archive) == ""
    with tensors_only():
        torch.export.load(tmp_path / "net.pt2")


def test_the_environment_is_as_before(monkeypatch):
    import os

    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    monkeypatch.delenv(name, raising=False)
    with tensors_only():
        assert os.environ[name] == "1"
    assert name not in os.environ
    monkeypatch.setenv(name, "0")
    with pytest.raises(KeyError), tensors_only():
        raise KeyError
    assert os.environ[name] == "0"
