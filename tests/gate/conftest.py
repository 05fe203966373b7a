import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import invoke
from small import Built


@dataclass(frozen=True)
class Gate:
    """A net and data for it, its baseline and the results."""

    model: Path
    data: Path
    baseline: Path
    xml: Path

    def save(self, between):
        """Save two convolutions with something between them."""
        torch.manual_seed(0)
        first, last = torch.nn.Conv2d(4, 4, 3), torch.nn.Conv2d(4, 4, 1)
        net = Built(lambda m, x: m.last(m.between(m.first(x))), first=first, between=between, last=last)
        torch.export.save(torch.export.export(net.eval(), (torch.rand(1, 4, 8, 8),)), self.model)

    def alone(self, *options, target="ethos-u55-128", command="check", status=0):
        """Run a command without the baseline."""
        given = [command, self.model, f"--target={target}", f"--calibrate={self.data}", "--no-verify"]
        return invoke(*given, *options, status=status)

    def check(self, *options, **how):
        """Check the net against the baseline."""
        return self.alone(f"--against={self.baseline}", *options, **how)

    def written(self):
        return json.loads(self.baseline.read_text())


@pytest.fixture
def gate(tmp_path):
    made = Gate(*(tmp_path / name for name in ("model.pt2", "samples.npz", "baseline.json", "gate.xml")))
    np.savez(made.data, x=np.random.default_rng(0).uniform(-1, 1, (3, 1, 4, 8, 8)).astype("float32"))
    made.save(torch.nn.ReLU())
    return made
