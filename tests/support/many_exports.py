"""Export small nets in one process, one after another, and print the memory it takes after each: MiB, a line each."""

import gc
import logging
import resource
import sys
import warnings
from pathlib import Path

import torch
from lowering import lower, quantize, tosa
from torch import nn

from safe_arm import SafeArmPartitioner

PROFILE = "TOSA-1.0+INT"


def net(seed):
    torch.manual_seed(seed)
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Hardtanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(8, 4)).eval()


def export(seed):
    inputs = (torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(seed)),)
    graph = quantize(net(seed), inputs, tosa(PROFILE))
    return lower(graph, inputs, SafeArmPartitioner(tosa(PROFILE))).to_executorch().buffer


def resident():
    """MiB of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main(count):
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    for seed in range(count):
        export(seed)
        gc.collect()
        print(resident(), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
