"""Statistics of calibration samples: bounds of all values, and the ordinary magnitude."""

import pytest
import torch

from safe_arm.quantizer.calibration.input_statistics import InputStatistics


def normal(number, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(number))


def of(*samples):
    found = InputStatistics.of(samples[0])
    for sample in samples[1:]:
        found.add(sample)
    return found


def test_a_large_sample_is_looked_at_in_part_and_its_outlier_is_found():
    sample = normal(0, 1, 3, 1024, 1024)
    sample[0, 1, 500, 501] = 1e6
    found = of(sample)
    assert (found.high, len(found.magnitudes)) == (1e6, 1)
    assert found.ordinary == pytest.approx(3.29, abs=0.2)


def test_the_ordinary_magnitude_is_that_of_half_the_samples():
    samples = [torch.full((1, 100), float(value)) for value in (5, 1, 9, 1000)]
    assert of(*samples).ordinary == 5
    assert of(*samples[:3]).ordinary == 5
    assert of(samples[3]).ordinary == 1000


def test_three_of_many_values_are_not_ordinary_and_all_of_few_are():
    many = torch.ones(1, 40)
    many[0, :3] = 1e6
    assert of(many).ordinary == 1
    assert of(torch.tensor([[1.0, 1e6]])).ordinary == 1e6


def test_zeros_and_what_is_not_finite_have_no_magnitude():
    silent = torch.zeros(1, 50)
    assert of(silent).ordinary is None
    assert of(silent, torch.ones(1, 50)).ordinary == 1
    masked = torch.ones(1, 50)
    masked[0, :20] = -torch.inf
    assert of(masked).ordinary == 1


def test_one_hots_and_masks_do_not_vary():
    assert not of(torch.eye(8)[:1], -torch.eye(8)[3:4]).varied
    assert of(torch.tensor([[0.0, 1.0, 2.0]])).varied


def test_samples_of_several_sizes_are_taken():
    found = of(normal(0, 1, 3, 8, 8), normal(1, 2, 3, 4, 6))
    assert len(found.magnitudes) == 2
