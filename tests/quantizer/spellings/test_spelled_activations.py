"""Activation functions that no annotator knows are written with operators that one does."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from small import image
from spelled import Spelling


class TestActivations(Spelling):
    inputs = image(gain=4.0)
    also = (image(gain=500.0), (torch.zeros(1, 4, 2, 2),))
    written: ClassVar = {
        "softplus": lambda m, x: F.softplus(x),
        "softplus, steeper": lambda m, x: F.softplus(x, beta=2.5),
        "mish": lambda m, x: F.mish(x),
        "another name of a softmax": lambda m, x: torch.special.softmax(x, 1),
        "another name of its logarithm": lambda m, x: torch.special.log_softmax(x, 1),
        "log-sigmoid": lambda m, x: F.logsigmoid(x),
        "threshold at 0": lambda m, x: F.threshold(x, 0.0, 0.0),
        "another number below 0": lambda m, x: F.threshold(x, 0.0, 0.1),
        "a threshold above 0": lambda m, x: F.threshold(x, 0.5, 0.0),
        "a threshold with a jump": lambda m, x: F.threshold(x, 0.5, 0.1),
        "hardshrink": lambda m, x: F.hardshrink(x, 0.7),
        "softshrink": lambda m, x: F.softshrink(x, 0.7),
        "randomised leaky relu": lambda m, x: F.rrelu(x),
        "log of a sum": lambda m, x: torch.logaddexp(x, x.flip(1)),
        "log of a sum to base 2": lambda m, x: torch.logaddexp2(x, m.conv.bias.view(4, 1, 1)),
    }
    kept: ClassVar = {
        "a softplus with a corner": lambda m, x: F.softplus(x, threshold=5),
        "a softplus upside down": lambda m, x: F.softplus(x, beta=-1),
        "a leaky relu in training": lambda m, x: F.rrelu(x, training=True),
        "double precision": lambda m, x: F.mish(x.double()),
    }
