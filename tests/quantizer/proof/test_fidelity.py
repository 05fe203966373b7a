"""An output is compared over all samples and on the worst of them."""

import math

import pytest
import torch

from safe_arm.core.float_comparison import FloatComparison
from safe_arm.core.unit_accuracy import EXACT_DB
from safe_arm.quantizer.proof.fidelity import compared


def test_the_worst_sample_is_named_beside_all_of_them():
    wanted = [[torch.tensor([100.0, 0.0])], [torch.tensor([1.0, 1.0])]]
    given = [[torch.tensor([100.0, 0.0])], [torch.tensor([1.0, 2.0])]]
    (output,) = compared(["y"], given, wanted)
    assert round(output.sqnr, 1) == 40.0
    assert round(output.worst_sqnr, 1) == 3.0
    assert (output.worst_sample, output.agreement) == (1, None)


def test_integers_agree_or_do_not():
    wanted, given = (
        [[torch.tensor([1, 2, 3, 4])], [torch.tensor([0, 0])]],
        [[torch.tensor([1, 2, 3, 0])], [torch.tensor([0, 0])]],
    )
    (output,) = compared(["labels"], given, wanted)
    assert (output.agreement, output.worst_agreement, output.worst_sample) == (5 / 6, 0.75, 0)
    assert output.sqnr is None


@pytest.mark.parametrize("number", [torch.inf, torch.finfo(torch.float32).min])
def test_the_number_of_a_mask_is_left_out(number):
    (output,) = compared(["y"], [[torch.tensor([1.0, 5.0])]], [[torch.tensor([1.0, number])]])
    assert output.sqnr == EXACT_DB


@pytest.mark.parametrize(("wanted", "given"), [(0.0, 1.0), (1.0, math.nan), (1.0, math.inf)])
def test_noise_without_a_signal_and_nan_are_as_bad_as_can_be(wanted, given):
    """Beside another output that is exact: neither is passed over."""
    good, bad, got = torch.ones(2), torch.full((2,), wanted), torch.full((2,), given)
    for names, actual, expected in ("gb", [[good, got]], [[good, bad]]), ("bg", [[got, good]], [[bad, good]]):
        assert FloatComparison(compared(names, actual, expected), 1).sqnr == -EXACT_DB


def test_what_is_no_tensor_is_not_compared():
    (output,) = compared(["n"], [[3]], [[3]])
    assert (output.sqnr, output.agreement) == (None, None)
