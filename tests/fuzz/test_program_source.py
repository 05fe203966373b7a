"""A program written out computes the same."""

import torch
import torch.nn.functional as F
from small import Built

from tools.fuzz.building import nets
from tools.fuzz.cases import Case, Input
from tools.fuzz.program_source import written


def plain(m, x):
    a, b = torch.split(F.pad(x, [1, 1], value=-0.5), 2, 1)
    return a * m.weight, torch.max(b, 1)[0]


def test_a_program_written_out_computes_the_same():
    given = torch.rand(3, 2)
    net = Built(plain, weight=torch.nn.Parameter(torch.tensor([0.5, float("inf")])))
    source, inputs = written(torch.export.export(net, (given,)))
    assert inputs == (Input((3, 2)),)
    (again,) = nets(Case(source, inputs)).values()
    for ours, theirs in zip(again(given), net(given), strict=True):
        assert torch.equal(ours, theirs)
