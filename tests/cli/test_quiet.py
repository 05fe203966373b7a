"""In a process of its own, with every library as loud as it likes, only what safe-arm says reaches the user."""

import re

import numpy as np
import pytest
import torch
from interpreter import python
from small import Built

#: Every line of stderr begins like one of these.
PROGRESS = re.compile(r"(load|calibrate on|lower for|lower delegate|write|verify a delegate|Warning: demoted) .*")
STDOUT = re.compile(
    r"\S+: (tosa|vgf|ethos-u55-128 \(\w+, \w+\)), TOSA.*|"
    r"(delegates|operators|MACs|not delegated|float net|verified|tried) .*|"
    r"(left float|refused|demoted|Vela cycles|recommended) .*|tag\d+ .*|"
    r"`--non-fuseable .*| +.*"
)
TARGETS = ("tosa", "vgf", "ethos-u55-128")


@pytest.fixture(scope="module")
def net(tmp_path_factory, save):
    """A program in which one operator is demoted, so that there are several trials, and data for it."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("quiet")
    np.savez(folder / "data.npz", x=np.random.default_rng(0).uniform(-1, 1, (2, 1, 3, 8, 8)).astype("float32"))
    first, last = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.Conv2d(7, 3, 1)
    joined = Built(lambda m, x: m.last(torch.cat((torch.relu(m.first(x)), x), 1)), first=first, last=last)
    net = Built(lambda m, x: (m.joined(x).to(torch.int16) + 3).float(), joined=joined)
    save(net, (torch.rand(1, 3, 8, 8),), folder / "net.pt2")
    return folder


def run(net, command, target, *options):
    arguments = [command, "net.pt2", "--target", target, "--calibrate", "data.npz", *options]
    return python("-W", "always", "-m", "safe_arm.cli", *arguments, cwd=net)


@pytest.mark.parametrize("target", TARGETS)
def test_export(net, target):
    done = run(net, "export", target, "-o", "net.pte")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not PROGRESS.fullmatch(line)] == []
    assert [line for line in done.stdout.splitlines() if not STDOUT.fullmatch(line)] == []


def test_verbose_brings_the_libraries_back(net):
    done = run(net, "export", "ethos-u55-128", "-o", "net.pte", "-v")
    assert done.returncode == 0, done.stderr
    assert "Network summary" in done.stdout  # Vela
    assert "Different TOSA spec in flatbuffer" in done.stdout  # TOSA's C++
    assert "Warning: " in done.stderr.replace("Warning: demoted", "")  # Python's libraries


def test_quiet_prints_warnings_alone(net):
    done = run(net, "export", "tosa", "-o", "net.pte", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Warning: demoted from the accelerator to the CPU: ")
