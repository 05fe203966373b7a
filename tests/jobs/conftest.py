import os
import sys
from pathlib import Path

import numpy as np
import pytest

from safe_arm.jobs.job import Job

ROOT = Path(__file__).parents[2]


@pytest.fixture
def job(tmp_path):
    """Make a job; of ``safe-arm issues`` unless it is given something else, whose result is what it prints."""

    def made(*arguments, name="job", memory=1, inputs=(), files=(), labels=None):
        arguments = arguments or ("issues", "--json")
        return Job(name, arguments, tmp_path, tmp_path / f"{name}.json", True, files, inputs, memory, labels or {})

    return made


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """Write so many float programs of one small convolution each and their data; return the directory."""
    import torch

    folder = tmp_path_factory.mktemp("programs")

    def write(number):
        for index in range(number):
            name = f"net{index:02}"
            if (folder / f"{name}.pt2").exists():
                continue
            torch.manual_seed(index)
            program = torch.export.export(torch.nn.Conv2d(2, 2 + index, 1).eval(), (torch.rand(1, 2, 4, 4),))
            torch.export.save(program, folder / f"{name}.pt2")
            samples = np.random.default_rng(index).uniform(-1, 1, (2, 1, 2, 4, 4)).astype("float32")
            np.savez(folder / f"{name}.npz", samples)
        return folder

    return write


@pytest.fixture
def here(monkeypatch):
    """Processes that the tests start find this checkout, and the tools."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
    monkeypatch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
