"""``safe-arm run``: ExecuTorch's own script, with our classes in it and a summary behind it."""

import sys
from functools import partial
from pathlib import Path

import pytest
from command_line import invoke, refused
from executorch.backends.arm.ethosu import EthosUPartitioner
from interpreter import python

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return torch.cat((torch.relu(self.conv(x)), x), 1)

torch.manual_seed(0)
ModelUnderTest = Net().eval()
ModelInputs = (torch.randn(1, 4, 8, 8),)
"""

SCRIPT = "executorch.backends.arm.scripts.aot_arm_compiler"


def aot(command, tmp_path):
    (tmp_path / "net.py").write_text(NET)
    arguments = ["-m", "net.py", "-t", "TOSA-1.0+INT", "--delegate", "--quantize", "-o", "net.pte"]
    done = python("-m", *command, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "net.pte").stat().st_size > 1000
    return done


def test_stock_says_nothing_of_what_it_lowers_wrongly_and_ours_why_it_does_not_delegate_it(tmp_path):
    """The profile is INT: before 1.5 stock leaves the island alone, and says nothing."""
    assert "not delegated" not in aot([SCRIPT], tmp_path).stderr
    ours = aot(["safe_arm.cli", "run", "-m", SCRIPT], tmp_path)
    assert "aten_relu_default: 1" in ours.stdout
    assert "relu cannot be fused: its lower bound 0 has code " in ours.stderr
    assert "net.py:10" in ours.stderr


#: What a script of ExecuTorch's does, on a net that stands in a module of its own.
NETS = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + x

ARGUMENTS = (torch.rand(1, 4),)
"""
LOWERING = """
import sys
import torch
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.util import _factory
from executorch.exir import to_edge_transform_and_lower
from nets import ARGUMENTS, Net

profile, *programs = sys.argv[1:]
for _ in programs:
    program = torch.export.export(Net().eval(), ARGUMENTS)
    partitioner = _factory.create_partitioner(TosaCompileSpec(profile))
    to_edge_transform_and_lower(program, partitioner=[partitioner])
"""


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    return partial(invoke, "run")


@pytest.fixture
def script(tmp_path):
    """Write the script."""
    return (tmp_path / "script.py").write_text


@pytest.fixture
def nets(tmp_path):
    """A module that scripts import, forgotten before and after the test as their package is."""
    (tmp_path / "nets.py").write_text(NETS)
    names = ("nets", "pkg", "pkg.mod")
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    yield
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(before)


@pytest.fixture
def lowering(tmp_path, nets):
    """A script in a package's directory."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "mod.py").write_text(LOWERING)
    return "pkg.mod"


def test_a_module_finds_what_stands_beside_it_as_with_python_m(run, lowering):
    result = run("-m", lowering, "TOSA-1.0+FP", "once")
    assert "operators       2 of 2 delegated" in result.stderr
    assert "verified        1 of 1" in result.stderr


def test_nothing_delegated_is_status_3_unless_that_is_accepted(run, lowering):
    """An integer profile has nothing to take of a float program."""
    empty = run("-m", lowering, "TOSA-1.0+INT", "once", status=3)
    assert empty.stderr.splitlines()[-1].startswith("Error: nothing is delegated, the whole program runs on the CPU: ")
    assert empty.stderr.endswith("; --allow-empty accepts it\n")
    assert "Error" not in run("--allow-empty", "-m", lowering, "TOSA-1.0+INT", "once").stderr
    quiet = run("-q", "-m", lowering, "TOSA-1.0+INT", "once", status=3)
    assert len(quiet.stderr.splitlines()) == 1, quiet.stderr


def test_each_program_has_its_report_and_no_verification_if_that_is_left_out(run, lowering, tmp_path):
    options = "--no-verify", "--report=own.html", "--report=own.json"
    result = run(*options, "-m", lowering, "TOSA-1.0+FP", "1", "2")
    assert "verified" not in result.stderr
    written = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("own"))
    assert written == ["own-2.html", "own-2.json", "own.html", "own.json"]
    told = [line for line in result.stderr.splitlines() if line.startswith("write ")]
    assert told == [f"write own{end}" for end in (".html", "-2.html", ".json", "-2.json")]


def test_the_reference_model_is_looked_for_before_the_script_runs(run, script, monkeypatch):
    script("print('ran')")
    monkeypatch.setattr("safe_arm.cli.required_tools.find_spec", lambda name: None)
    refused(run("script.py", status=2), "pip install tosa-tools==2026.8.0")
    assert run("--no-verify", "script.py", status=3).stdout == "ran\n"


def test_a_script_gets_its_arguments_and_its_exit_status(run, script):
    script("import sys\nprint(sys.argv[1:])\nsys.exit(3)")
    assert run("script.py", "-m", "x", "--help", status=3).stdout == "['-m', 'x', '--help']\n"


STOCK = "executorch.backends.arm"
#: Each makes a stock partitioner P or quantiser, in one of the ways that a script has.
WAYS = {
    "by name": f"from {STOCK}.ethosu import EthosUPartitioner\npart = EthosUPartitioner(spec)",
    "alias": f"from {STOCK}.ethosu import EthosUPartitioner as P\nmake = P\npart = make(compile_spec=spec)",
    "module": f"import {STOCK}.ethosu.partitioner as m\npart = m.EthosUPartitioner(spec)",
    "factory": f"from {STOCK}.util._factory import create_partitioner\npart = create_partitioner(spec)",
    "helper module": "from helper import partitioner\npart = partitioner(spec)",
    "subclass": f"from {STOCK}.ethosu import EthosUPartitioner\nclass Mine(EthosUPartitioner): pass\npart = Mine(spec)",
    "subclass that names its base": "from helper import Named\npart = Named(spec)\nassert part.own == 1",
    "quantiser by name": f"from {STOCK}.quantizer import EthosUQuantizer\npart = EthosUQuantizer(spec)",
    "quantiser by module": f"import {STOCK}.quantizer as q\npart = q.EthosUQuantizer(compile_spec=spec)",
    "quantiser by factory": f"from {STOCK}.util._factory import create_quantizer\npart = create_quantizer(spec)",
    "quantiser subclass": f"from {STOCK}.quantizer import EthosUQuantizer as Q\nclass Mine(Q): pass\npart = Mine(spec)",
}
HELPER = f"""
from {STOCK}.ethosu import EthosUPartitioner

def partitioner(spec):
    return EthosUPartitioner(spec)

class Named(EthosUPartitioner):
    def __init__(self, spec):
        EthosUPartitioner.__init__(self, spec)
        self.own = 1
"""
PRINTS = """
print(isinstance(part, (SafeArmPartitioner, SafeEthosUQuantizer)), getattr(part, "non_fuseable", ""))
print([each.__name__ for each in type(part).__mro__ if each.__name__ in ("EthosUPartitioner", "EthosUQuantizer")])
"""
BEGIN = f"""
from {STOCK}.ethosu import EthosUCompileSpec
from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer
spec = EthosUCompileSpec("ethos-u55-128")
"""


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_a_stock_class_ends_at_ours(run, script, tmp_path, monkeypatch, way):
    """Also where the class was imported by name before the run began, as the factories have."""
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    (tmp_path / "helper.py").write_text(HELPER)
    script(f"{BEGIN}{WAYS[way]}\n{PRINTS}")
    result = run("--non-fuseable=propagate", "--allow-empty", "script.py")
    kind, policy = ("Quantizer", "") if "quantiser" in way else ("Partitioner", "propagate")
    assert result.stdout.splitlines() == [f"True {policy}", f"['EthosU{kind}']"]


DIRECT = "from executorch.backends.arm.tosa.partitioner import TOSAPartitioner\n"
OURS = "from safe_arm import SafeArmPartitioner\n"


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize(
    ("imports", "made", "verified"),
    [(DIRECT, "TOSAPartitioner(", True), (OURS, "SafeArmPartitioner(verify=False, compile_spec=", False)],
    ids=["stock's class", "our class already, with its own options"],
)
def test_a_partitioner_made_directly_delegates_and_reports(run, script, imports, made, verified):
    script(imports + LOWERING.replace("_factory.create_partitioner(", made))
    result = run("script.py", "TOSA-1.0+FP", "once")
    assert "operators       2 of 2 delegated" in result.stderr
    assert ("verified        1 of 1" in result.stderr) == ("verified" in result.stderr) == verified


#: A subclass that sets everything itself, as stock's own subclasses do, and never calls a stock constructor.
OWN = """
from executorch.backends.arm.tosa.partitioner import DecomposableResizeSupported, TOSAPartitioner
from executorch.exir.backend.partitioner import DelegationSpec

class Own(TOSAPartitioner):
    def __init__(self, spec):
        self.delegation_spec = DelegationSpec("TOSABackend", spec._to_list())
        self.additional_checks = self.intermediate_path = None
        self.compile_spec, self.tosa_spec = spec, spec.tosa_spec
        self._decomposable_resize_support = DecomposableResizeSupported(self.tosa_spec)
        self._custom_partition_ops = set()
        self._requires_resolved_tensor_shapes = False
"""


def test_a_script_that_raises_ends_as_by_the_interpreter(run, script):
    script("def f():\n    raise ValueError('mine')\n\nf()\n")
    lines = run("script.py", status=1).stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: mine"
    files = [line.split('"')[1] for line in lines if line.startswith("  File ")]
    assert [Path(file).name for file in files] == ["script.py", "script.py"]
    script("f(\n")
    assert "SyntaxError: '(' was never closed" in run("script.py", status=1).stderr.splitlines()[-1]


@pytest.mark.usefixtures("nets")
def test_a_subclass_that_is_not_reached_is_told_and_ends_with_3(run, script):
    script(OWN + LOWERING.replace("_factory.create_partitioner", "Own"))
    result = run("--allow-empty", "script.py", "TOSA-1.0+FP", "once", status=3)
    assert result.stderr.splitlines()[-1] == (
        "Error: script.py partitions with Own, which safe-arm run cannot replace, so what it delegates is not verified;"
        " derive Own from safe_arm.SafeArmPartitioner"
    )


def test_a_script_that_makes_no_arm_partitioner_ends_with_3_and_stock_is_put_back(run, script):
    stock = EthosUPartitioner.__init__
    script("print('done')")
    result = run("script.py", status=3)
    assert result.stdout == "done\n"
    assert result.stderr.splitlines()[-1] == (
        "Error: script.py made no Arm partitioner in this process, so nothing is delegated or verified;"
        " --allow-empty accepts it"
    )
    run("--allow-empty", "script.py")
    assert EthosUPartitioner.__init__ is stock


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nowhere.py", "there is no file nowhere.py; for a module put -m before its name"),
        ("-m no.such.module", "there is no module no.such.module; leave -m out for a file"),
        ("--non-fuseable=maybe x.py", "--non-fuseable 'maybe' is not known; accepted: reject, propagate, best"),
        ("--report=own.xml script.py", "report 'own.xml' has to end in .json or .html"),
        ("--report=missing/own.html script.py", "output directory 'missing' does not exist; create it or give another"),
    ],
)
def test_wrong_use_is_one_line_before_the_script_runs(run, script, line, says):
    script("print('ran')")
    refused(run(*line.split(), status=2), f"Error: {says}")
