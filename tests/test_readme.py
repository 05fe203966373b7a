"""The README's code runs."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

README = Path(__file__).parents[1] / "README.md"
NET = "import torch\nModelUnderTest = torch.nn.Conv2d(3, 4, 3).eval()\nModelInputs = (torch.randn(1, 3, 8, 8),)\n"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def test_the_script_runs_and_delegates_everything(tmp_path):
    (script,) = blocks("python")
    root = str(README.parent)
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "non-fuseable" not in result.stdout


def commands() -> list[str]:
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    return [line for line in lines if line.startswith("safe-arm")]


@pytest.mark.parametrize("command", commands())
def test_every_command_runs(command, tmp_path):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    torch.export.save(torch.export.export(model, (torch.randn(1, 3, 8, 8),)), tmp_path / "model.pt2")
    (tmp_path / "net.py").write_text(NET)
    np.savez(tmp_path / "samples.npz", np.random.default_rng(0).standard_normal((4, 1, 3, 8, 8), dtype=np.float32))
    arguments = [sys.executable, "-m", "safe_arm.cli", *shlex.split(command)[1:]]
    root = str(README.parent)
    env = {**os.environ, "PYTHONPATH": root}
    result = subprocess.run(arguments, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "model.pte").exists() == ("-o model.pte" in command)
    said = {
        "export": "MACs",
        "check": "MACs",
        "doctor": "\nok",
        "issues": "known issues affect",
        "run": "MACs",
        "repro": "nothing is",
    }
    assert said[shlex.split(command)[1]] in result.stdout + result.stderr


def test_every_make_target_named_exists():
    makefile = (README.parent / "Makefile").read_text()
    for target in re.findall(r"make ([a-z][\w.-]*)", README.read_text()):
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), target
