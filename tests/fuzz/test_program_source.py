"""A program written out computes the same."""

import torch
import torch.nn.functional as F

from tests.fuzz.building import nets
from tests.fuzz.cases import Case, Input
from tests.fuzz.program_source import written


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.5, float("inf")]))

    def forward(self, x):
        a, b = torch.split(F.pad(x, [1, 1], value=-0.5), 2, 1)
        return a * self.weight, torch.max(b, 1)[0]


def test_a_program_written_out_computes_the_same():
    given = torch.rand(3, 2)
    source, inputs = written(torch.export.export(Plain(), (given,)))
    assert inputs == (Input((3, 2)),)
    (net,) = nets(Case(source, inputs)).values()
    for ours, theirs in zip(net(given), Plain()(given), strict=True):
        assert torch.equal(ours, theirs)
