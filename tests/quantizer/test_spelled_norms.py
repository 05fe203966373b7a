"""Norms that no annotator knows are written with operators that one does."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from small import image
from spelled import Spelling


class TestNorms(Spelling):
    inputs = image(gain=3.0)
    also = ((torch.zeros(1, 4, 8, 8),),)
    written: ClassVar = {
        "instance norm": lambda m, x: F.instance_norm(x),
        "instance norm with weights": lambda m, x: F.instance_norm(x, weight=m.conv.bias, bias=m.conv_b.bias, eps=0.1),
        "instance norm of a sequence": lambda m, x: F.instance_norm(x.flatten(2)),
        "root mean square": lambda m, x: F.rms_norm(x, (8,)),
        "root mean square of two dimensions": lambda m, x: F.rms_norm(x, (8, 8), m.linear.weight, 1e-3),
        "Frobenius norm": lambda m, x: torch.linalg.norm(x, dim=(1, 2)),
        "norm of order 2": lambda m, x: torch.linalg.norm(x, 2, dim=1, keepdim=True),
        "length 1": lambda m, x: F.normalize(x, dim=-1),
    }
    kept: ClassVar = {
        "a norm by the past": lambda m, x: F.instance_norm(x, torch.zeros(4), torch.ones(4), use_input_stats=False),
        "a norm that writes what was seen": lambda m, x: F.instance_norm(x, torch.zeros(4), torch.ones(4)),
        "a norm of matrices": lambda m, x: torch.linalg.norm(x, 2, dim=(2, 3)),
        "a norm of order 3": lambda m, x: torch.linalg.norm(x, 3, dim=1),
    }
    parts = 2
