"""``safe-arm run``: ExecuTorch's own script, with our classes in it and a summary behind it."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
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
    done = subprocess.run(
        [sys.executable, "-m", *command, *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": str(Path(sys.executable).parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "net.pte").stat().st_size > 1000
    return done


def test_stock_says_nothing_of_what_it_lowers_wrongly(tmp_path):
    """The profile is INT: before 1.5 stock leaves the island alone, and says nothing."""
    assert "not delegated" not in aot([SCRIPT], tmp_path).stderr


def test_ours_says_why_it_does_not_delegate_it(tmp_path):
    ours = aot(["safe_arm.cli", "run", "-m", SCRIPT], tmp_path)
    assert "aten_relu_default: 1" in ours.stdout
    assert "non-fuseable island: relu is not implied by its output qparams" in ours.stderr
    assert "net.py:10" in ours.stderr


def test_the_other_policy(tmp_path):
    ours = aot(["safe_arm.cli", "run", "--non-fuseable=propagate", "-m", SCRIPT], tmp_path)
    assert "operators       3 of 3 delegated" in ours.stderr


@pytest.fixture
def run(monkeypatch, tmp_path):
    from safe_arm.cli.main import cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    return lambda *arguments: CliRunner().invoke(cli, ["run", *arguments])


def test_a_script_gets_its_arguments_and_its_exit_status(run, tmp_path):
    (tmp_path / "script.py").write_text("import sys\nprint(sys.argv[1:])\nsys.exit(3)")
    result = run("script.py", "-m", "x", "--help")
    assert result.stdout.strip() == "['-m', 'x', '--help']"
    assert result.exit_code == 3


def test_a_script_that_makes_no_arm_partitioner_is_told_so_and_the_factories_are_put_back(run, tmp_path):
    from executorch.backends.arm.util import _factory

    stock = _factory.create_partitioner
    (tmp_path / "script.py").write_text("print('done')")
    result = run("script.py")
    assert result.exit_code == 0
    assert "script.py made no Arm partitioner; for other flows see safe_arm.recipes.safe" in result.stderr
    assert _factory.create_partitioner is stock


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.py"], "there is no file nowhere.py; for an installed module put -m before its name"),
        (["-m", "no.such.module"], "there is no module no.such.module; leave -m out for a file"),
        (["--non-fuseable=maybe", "x.py"], "--non-fuseable 'maybe' is not known; accepted: reject, propagate"),
    ],
    ids=["no file", "no module", "no policy"],
)
def test_wrong_use_is_one_line(run, arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [f"Error: {says}"]
