"""What makes an export poor is told in the user's names; what looks like it is not."""

import pytest
import torch
import torch.nn as nn
from lowering import lower, min_max, quantize, tosa
from small import Built, Lambda
from stubborn import quantizer_of

from safe_arm import SafeArmPartitioner
from safe_arm.core.doubts import doubtful_tensors, doubts, merged_inputs
from safe_arm.core.errors import DoubtfulInputWarning


def net():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout()).eval()


def spoilt(name, index, value):
    made = net()
    made.get_parameter(name).data[index] = float(value)
    return made


#: An infinite buffer, as masks of attention are.
MASKED = Built(lambda m, x: (x + m.mask).softmax(-1), mask=torch.full((8, 8), float("-inf")).triu(1))
X = (torch.randn(1, 3, 8, 8),)
TRAINING = ["the model was exported in training mode"]
MODELS = {
    "fine": (net(), X, []),
    "a mask": (MASKED, X, []),
    "training": (net().train(), X, TRAINING),
    "batch norm in training": (nn.Sequential(nn.BatchNorm2d(3)).train(), X, TRAINING),
    "batch norm of each batch": (nn.BatchNorm2d(3, track_running_stats=False).eval(), X, []),
    "instance norm": (nn.InstanceNorm2d(3).eval(), X, []),
    "dropout in training": (nn.Dropout().train(), X, TRAINING),
    "float64": (net().double(), (X[0].double(),), ["'0.weight', '0.bias', '1.weight' and 4 more are float64"]),
    "a float64 input": (nn.ReLU(), (X[0].double(),), ["'input' is float64"]),
    "NaN": (spoilt("0.weight", 1, "nan"), X, ["'0.weight' is NaN in 27 of its 108 values"]),
    "infinite": (spoilt("0.bias", 2, "inf"), X, ["'0.bias' is infinite in 1 of its 4 values"]),
}


@pytest.mark.parametrize("name", MODELS)
def test_each_is_told_in_one_sentence(name):
    model, inputs, expected = MODELS[name]
    program = torch.export.export(model, inputs)
    told = list(doubts(program, program.state_dict))
    assert [text.startswith(says) for text, says in zip(told, expected, strict=True)] == [True] * len(expected), told


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(2).to(torch.float8_e4m3fn),
        torch.ones(2, device="meta"),
        torch.ones(2).to_sparse(),
        torch.ones(2, dtype=torch.complex64),
    ],
    ids=["float8", "meta", "sparse", "complex"],
)
def test_what_cannot_be_looked_into_is_passed_over(tensor):
    assert list(doubtful_tensors({"weight": tensor}, {"buffer": tensor})) == []


def test_a_float_export_is_looked_at_when_it_is_partitioned():
    with pytest.warns(DoubtfulInputWarning, match=r"^'0.weight' is NaN"):
        lower(spoilt("0.weight", 1, "nan"), X, SafeArmPartitioner(tosa("TOSA-1.0+FP"), verify=False))


def test_an_instance_norm_is_not_in_training_where_it_is_partitioned(recwarn):
    lower(nn.InstanceNorm2d(3).eval(), X, SafeArmPartitioner(tosa("TOSA-1.0+FP"), verify=False))
    assert not [each for each in recwarn if "training mode" in str(each.message)]


def scaled(slope):
    return Built(lambda m, x: (x.reshape(-1, 2) * m.slope).clamp(-1, 1), slope=torch.tensor([1.0, slope]))


@pytest.mark.parametrize(
    "model", [scaled(float("inf")), Lambda(lambda m, x: (x / -float("inf")).exp())], ids=["buffer", "number"]
)
def test_what_multiplies_by_infinity_is_told_when_it_is_quantised(model):
    with pytest.warns(DoubtfulInputWarning, match=r"takes an infinity, of which quantising makes 255"):
        quantize(model, X, tosa("TOSA-1.0+INT"), config=min_max())


@pytest.mark.parametrize(
    "model",
    [MASKED, scaled(2.0), Lambda(lambda m, x: torch.where(x > 0, x, -float("inf")).amax(1).clamp(min=-1))],
    ids=["an added mask", "finite", "a value of where"],
)
def test_an_infinity_that_is_not_multiplied_is_not(model, recwarn):
    quantize(model, X, tosa("TOSA-1.0+INT"), config=min_max())
    assert not [each for each in recwarn if "infinity" in str(each.message)]


def distance(m, x, y):
    return (x - y).abs()


@pytest.mark.parametrize("sizes", [{}, {0: torch.export.Dim("n")}], ids=["static", "dynamic"])
@pytest.mark.parametrize("checks", [True, False], ids=["guards", "no guards"])
def test_two_inputs_that_are_exported_as_one_tensor_are_told(sizes, checks):
    """The graph computes the distance of the second input from itself, which is 0."""
    x = torch.rand(2, 4)
    program = torch.export.export(Lambda(distance), (x, x), dynamic_shapes=(sizes, (sizes,)))
    (doubt,) = merged_inputs(program.module(check_guards=checks))
    assert doubt.startswith("nothing reads input ")
    with pytest.warns(DoubtfulInputWarning, match="two inputs that are one tensor"):
        quantizer_of().transform_for_annotation(program.module(check_guards=checks))


UNREAD = Lambda(lambda m, x, y, z: x + y)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Lambda(distance), (torch.rand(2, 4), torch.rand(2, 4))),
        (UNREAD, (torch.rand(2, 4), torch.rand(2, 4), torch.rand(2, 4))),
        (Lambda(lambda m, x, y: y * 2), (torch.rand(2, 3), torch.rand(2, 4))),
        (Lambda(lambda m, x, y: y * 2), (torch.ones(2, 4, dtype=torch.bool), torch.rand(2, 4))),
    ],
    ids=["different tensors", "the last of all", "other sizes", "no floats"],
)
def test_an_input_that_is_no_other_is_not(model, inputs):
    assert list(merged_inputs(torch.export.export(model, inputs).module())) == []
