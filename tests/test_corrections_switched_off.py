"""Without a correction of the quantisers the float proof alone finds what it corrects, and the net stays right.

A table of what it finds; what it cannot find is below, with the reason.
"""

import copy
from contextlib import nullcontext

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from float_faults import Counter
from lowering import HISTOGRAM
from small import Built, Lambda, image
from stubborn import quantizer_of
from torch.utils._pytree import tree_leaves

from safe_arm.quantizer import ordered_steps, safe_quantizers
from safe_arm.quantizer.graphs.functional_writes import write_functionally
from safe_arm.quantizer.spellings.extreme_indices import name_extreme_indices
from safe_arm.quantizer.spellings.infinite_numbers import open_infinite_bounds
from safe_arm.quantizer.spellings.reversed_differences import multiply_subtrahends
from safe_arm.quantizer.spellings.scalar_ranks import keep_scalar_ranks
from safe_arm.quantizer.spellings.similarity_dims import name_similarity_dims
from safe_arm.quantizer.training import norm_folding

SAMPLES = [image(seed) for seed in range(3)]


class Shared(nn.Module):
    """A convolution that is read twice, once behind a norm."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        y = self.conv(x)
        return self.norm(y), y


def counting(m, x):
    """Count in a state of integers."""
    m.calls = m.calls + 1
    return torch.sigmoid(x), m.calls


def without_step(step):
    def switched_off(patch):
        steps = tuple(each for each in ordered_steps.BEFORE_PASSES if each is not step)
        assert len(steps) == len(ordered_steps.BEFORE_PASSES) - 1
        patch.setattr(ordered_steps, "BEFORE_PASSES", steps)

    return switched_off


def replaced(owner, name, function):
    """Switch a correction off by putting something in its place."""
    return lambda patch: patch.setattr(owner, name, function)


WITHOUT_OUTPUTS = replaced(safe_quantizers, "restore_outputs", lambda model, outputs: None)
WITHOUT_STATES = replaced(safe_quantizers, "with_states_apart", lambda model, transform: transform(model))
CASES = {
    "T16": (without_step(name_similarity_dims), Lambda(lambda m, x: F.cosine_similarity(x, m.conv(x), 3))),
    "T18": (replaced(norm_folding, "_foldable", lambda norm: True), Shared()),
    "T21": (without_step(keep_scalar_ranks), Lambda(lambda m, x: torch.stack((x.mean() + 1.5, x.mean() * 0.5)))),
    "T23": (WITHOUT_OUTPUTS, Lambda(lambda m, x: (m.conv(x), torch.arange(4) * 2))),
    "T24": (without_step(open_infinite_bounds), Lambda(lambda m, x: (m.conv(x) * 1000).clamp(0.0, float("inf")))),
    "T25": (without_step(multiply_subtrahends), Lambda(lambda m, x: torch.rsub(m.conv(x), 1.0, alpha=3.0))),
    "T26": (without_step(write_functionally), Counter()),
    "T29": (WITHOUT_STATES, Built(counting, calls=torch.zeros((), dtype=torch.int64))),
    "T30": (without_step(name_extreme_indices), Lambda(lambda m, x: m.conv(x).max(1)[1])),
}


def quantizer():
    return quantizer_of(config=HISTOGRAM)


def exported(net):
    return torch.export.export(copy.deepcopy(net).eval(), SAMPLES[0]).module(check_guards=False)


def twice(module):
    module = copy.deepcopy(module)
    return [leaf for sample in SAMPLES[:2] for leaf in tree_leaves(module(*sample))]


@pytest.mark.filterwarnings("ignore:.*stay float", "ignore::safe_arm.core.errors.DoubtfulInputWarning")
@pytest.mark.parametrize("issue", CASES)
def test_the_float_proof_alone_finds_it(issue, monkeypatch):
    switched_off, net = CASES[issue]
    net = copy.deepcopy(net).eval()
    with monkeypatch.context() as patch:
        switched_off(patch)
        made = quantizer()
        run = safe_quantizers.run_of(model := exported(net), folds=True)
        norm_folding.fold(model)
        transformed = made.transform_for_annotation(model)
    assert run.trials.note == ""
    reasons = " ".join(each.reason for each in made.left_float)
    assert "changes what the net computes" in reasons or "not folded" in reasons
    for given, wanted in zip(twice(transformed), twice(net), strict=True):
        assert given.dtype == wanted.dtype
        assert given.shape == wanted.shape
        assert torch.allclose(given, wanted, atol=1e-4)


@pytest.mark.changes_weights
@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DoubtfulInputWarning")
def test_weights_that_are_written_into_are_an_error(monkeypatch):
    """T31: the graph computes the net, so that only the weights themselves show it."""
    replaced(safe_quantizers, "copy_scaled_weights", lambda model, **_: None)(monkeypatch)
    in_part = quantizer().set_module_name("linear", None)  # Otherwise ours folds the factor itself.
    with pytest.raises(safe_quantizers.InternalError, match=r"wrote into 'conv.weight', 'conv.bias'"):
        in_part.transform_for_annotation(exported(Lambda(lambda m, x: torch.relu(m.conv(x) * 4))))


@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DoubtfulInputWarning")
def test_a_state_that_calibration_left_behind_is_said(monkeypatch):
    """T28: the graphs compute the same; where the quantised one begins is no question of the transform."""
    monkeypatch.setattr(safe_quantizers, "state_at_rest", lambda model: nullcontext([]))
    with pytest.warns(safe_quantizers.float_run.FloatProofWarning, match="state 'total' of the quantised graph is not"):
        quantizer().quantize_with_submodules(exported(Counter()), SAMPLES)
