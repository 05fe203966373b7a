"""Save what a training job leaves: the model as a .pt2, and calibration samples. The exports run in CI."""

import sys

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
activation = nn.CELU() if "--celu" in sys.argv else nn.ReLU()
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), activation, nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 8 * 8, 10),
)  # fmt: skip
samples = np.random.default_rng(0).standard_normal((8, 1, 3, 32, 32), dtype=np.float32)  # your own data
torch.export.save(torch.export.export(model.eval(), (torch.from_numpy(samples[0]),)), "model.pt2")
np.savez("samples.npz", samples)
