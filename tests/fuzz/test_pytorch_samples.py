"""PyTorch's samples are cases like any other, with inputs that their operators are defined for."""

from itertools import chain

import pytest
import torch

from tools.fuzz.building import samples
from tools.fuzz.cases import Case, Input, one_line
from tools.fuzz.pytorch_samples import EACH, listed, numbered
from tools.fuzz.toolchain import built, lowers_alone, through_ours


def cases_of(name, generator="operators"):
    names = [each.name for each in listed(generator)]
    return dict(numbered(generator, 1, EACH, names.index(name) * EACH))


@pytest.mark.parametrize(
    ("generator", "name"),
    [
        *(("operators", name) for name in ("clamp", "sub", "nn.functional.conv2d", "nn.functional.cross_entropy")),
        *(("modules", name) for name in ("nn.BatchNorm1d", "nn.LSTM", "nn.TransformerEncoderLayer")),
    ],
)
def test_a_sample_runs_and_comes_from_data_as_it_was(generator, name):
    cases = cases_of(name, generator)
    assert len(cases) > 2
    for number, case in cases.items():
        built(case)
        assert Case.from_json(case.to_json()) == case
        assert cases_of(name, generator)[number] == case


def test_values_lie_where_the_operator_is_defined():
    for case in cases_of("acosh").values():
        assert all(float(each.min()) >= 1 for sample in chain(*samples(case)) for each in sample if each.numel())


def test_what_is_random_or_undefined_is_left_out():
    assert not cases_of("bernoulli")
    assert not cases_of("empty_like")


def test_what_executorch_alone_cannot_lower_is_no_failure_of_ours():
    """PyTorch's decomposition of a linspace of tensors asks for the type of no device."""
    case = Case(one_line("torch.ops.aten.linspace.Tensor_Scalar(x0, 1, 3)"), (Input(()),))
    assert not lowers_alone(case)
    assert through_ours(case)[0].verdict == "invalid"


def test_an_empty_tensor_has_no_bounds():
    assert Input((0, 2)).around(torch.empty(0, 2)) == Input((0, 2))
    assert Input((2,)).around(torch.tensor([3.0, torch.inf])) == Input((2,), low=3.0, high=3.0)
