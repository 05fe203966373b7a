"""Bags of embeddings are embeddings that are summed, which are delegated."""

from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from lowering import PROFILES, min_max, quantize, tosa
from ratios import borders_and_ours
from spelled import Delegated, left_on_the_cpu

from safe_arm.quantizer.spellings.constant_spellings import spell_out_with_constants

#: Two bags of three elements, and their factors.
INDICES = torch.tensor([[0, 3, 7], [5, 5, 2]]), torch.linspace(0.1, 1.0, 6).view(2, 3)
UNEVEN = torch.tensor([0, 1, 4])
ENDS = torch.tensor([0, 1, 4, 6])
#: A cast of the indices from 64 bits is all that stays on the CPU.
CAST = "dim_order_ops::_to_dim_order_copy"


def bag(indices, m, *offsets, **how):
    return F.embedding_bag(indices, m.linear.weight, *offsets, **how) * 2


RULES = {
    "sums": lambda m, i, w: bag(i, m, mode="sum"),
    "means": lambda m, i, w: bag(i, m, mode="mean"),
    "largest": lambda m, i, w: bag(i, m, mode="max"),
    "sums with factors": lambda m, i, w: bag(i, m, mode="sum", per_sample_weights=w),
    "bags of one": lambda m, i, w: bag(i[:, :1], m, mode="sum"),
    "means of uneven bags": lambda m, i, w: bag(i.flatten(), m, UNEVEN, mode="mean"),
    "sums of uneven bags with ends": lambda m, i, w: bag(i.flatten(), m, ENDS, mode="sum", include_last_offset=True),
    "sums of uneven bags with factors": lambda m, i, w: bag(
        i.flatten(), m, UNEVEN, mode="sum", per_sample_weights=w.flatten()
    ),
}


class TestBags(Delegated):
    step = staticmethod(spell_out_with_constants)
    inputs = INDICES
    written = RULES
    gone = ("embedding_bag.",)
    kept: ClassVar = {
        "the largest of uneven bags": lambda m, i, w: bag(i.flatten(), m, UNEVEN, mode="max"),
        "ends that leave elements out": lambda m, i, w: bag(
            i.flatten(), m, UNEVEN, mode="sum", include_last_offset=True
        ),
        "an empty bag": lambda m, i, w: bag(i.flatten(), m, torch.tensor([0, 3, 3]), mode="sum"),
        "offsets of run time": lambda m, i, w: bag(i.flatten(), m, i[0].sort()[0] * 0 + UNEVEN, mode="sum"),
        "an element that does not count": lambda m, i, w: bag(i, m, mode="mean", padding_idx=3),
        "an embedding": lambda m, i, w: F.embedding(i, m.linear.weight) * 2,
    }

    def test_ours_is_one_exact_delegate(self, proven):
        net, inputs = self.case(proven)
        graph_module = quantize(net.eval(), inputs, tosa(PROFILES[0]), config=min_max())
        assert left_on_the_cpu(graph_module, inputs) == [CAST]


@pytest.mark.parametrize(
    "name", ["means", "sums with factors", "means of uneven bags", "sums of uneven bags with factors"]
)
def test_ours_is_near_rounded_borders(name):
    generator = torch.Generator().manual_seed(0)
    layer = SimpleNamespace(weight=torch.randn(8, 8, generator=generator))

    def rule(m, indices, factors):
        return RULES[name](SimpleNamespace(linear=layer), indices, factors)

    samples = []
    for _ in range(6):
        indices = torch.randint(0, 8, (2, 3), generator=generator)
        samples.append((indices, torch.rand(2, 3, generator=generator)))
    borders, ours = borders_and_ours(rule, samples)
    assert ours > borders - 1
