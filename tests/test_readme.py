"""The code of the README, and of the pages that were part of it, runs; their links lead somewhere."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *(ROOT / "docs" / f"{name}.md" for name in ("flows", "policies", "demotion", "verification"))]
EVERY_PAGE = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
NET = "import torch\nModelUnderTest = torch.nn.Conv2d(3, 4, 3).eval()\nModelInputs = (torch.randn(1, 3, 8, 8),)\n"


def blocks(language: str) -> list[str]:
    text = "\n".join(page.read_text() for page in PAGES)
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def seconds(text: str) -> str:
    return re.sub(r"\d+\.\d s", "N s", text)


def test_the_script_runs_and_prints_what_the_readme_says(tmp_path):
    (script,) = blocks("python")
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert not re.search(r"(DoubtfulInput|Demotion|Unproven)Warning", result.stderr), result.stderr
    (printed,) = blocks("text")
    assert seconds(result.stdout) == seconds(printed)
    assert "100.0 % delegated" in printed


def commands() -> list[str]:
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    return list(dict.fromkeys(line for line in lines if line.startswith("safe-arm")))


@pytest.mark.parametrize("command", commands())
def test_every_command_runs(command, tmp_path):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    torch.export.save(torch.export.export(model, (torch.randn(1, 3, 8, 8),)), tmp_path / "model.pt2")
    (tmp_path / "net.py").write_text(NET)
    np.savez(tmp_path / "samples.npz", np.random.default_rng(0).standard_normal((4, 1, 3, 8, 8), dtype=np.float32))
    arguments = [sys.executable, "-m", "safe_arm.cli", *shlex.split(command)[1:]]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(arguments, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "model.pte").exists() == ("-o model.pte" in command)
    said = {
        "export": "MACs",
        "check": "MACs",
        "doctor": "ok for ",
        "issues": "known issues affect",
        "run": "MACs",
        "repro": "nothing is",
    }
    assert said[shlex.split(command)[1]] in result.stdout + result.stderr


def test_every_make_target_named_exists():
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"make ([a-z][\w.-]*)", page.read_text()):
            assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page):
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_is_linked_from_the_readme():
    links = set(re.findall(r"\]\((docs/[^)#]+\.md)\)", README.read_text()))
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} == links
