"""What is no graph module is refused, and a failure says which sample does not fit the model."""

import pytest
import torch
from small import Built, image
from stubborn import exported, quantizer_of

from safe_arm import UsageError

X = image()[0]
NET = Built(lambda m, x: torch.relu(m.conv(x)), conv=torch.nn.Conv2d(4, 4, 1))
MODELS = {
    "eager": (NET, "the model is a Built, which is no exported graph module; give torch.export.export(model.eval(),"),
    "program": (torch.export.export(NET, (X,)), "the model is an ExportedProgram; give its graph module, program.mod"),
}
SAMPLES = {
    "too many": ((X, X), "calibration sample 1 has 2 values; the model takes 1: 'x'"),
    "none": ((), "calibration sample 1 has 0 values; the model takes 1: 'x'"),
    "dtype": (
        (X.double(),),
        "input 'x' of calibration sample 1 is float64 of shape (1, 4, 8, 8); the model was exp",
    ),
    "channels": (
        (X[:, :2],),
        "is float32 of shape (1, 2, 8, 8); the model was exported for float32 of shape (1, 4, 8",
    ),
    "text": (("x",), "input 'x' of calibration sample 1 is a str; the model was exported for float32 of shape"),
}


def refusal(model, samples):
    with pytest.raises(UsageError) as caught:
        quantizer_of().quantize_with_submodules(model, samples)
    return str(caught.value)


@pytest.mark.parametrize(("model", "says"), MODELS.values(), ids=MODELS)
def test_what_is_no_graph_module_is_refused_with_what_to_give(model, says):
    assert says in refusal(model, [(X,)])


@pytest.mark.parametrize(("sample", "says"), SAMPLES.values(), ids=SAMPLES)
def test_a_sample_that_does_not_fit_is_named(sample, says):
    for _ in range(2):
        assert says in refusal(exported(NET, (X,)), [(X,), sample])


def test_a_sample_that_is_a_number_is_refused():
    assert refusal(exported(NET, (X,)), [(X,), 3]).startswith("calibration sample 1 is 3; give a tuple of the model's")


@pytest.mark.parametrize("sample", [torch.cat((X, -X)), X[..., :6]], ids=["batch", "size"])
def test_what_the_model_takes_is_not_refused(sample):
    """Neither is what it was exported with."""
    assert quantizer_of().quantize_with_submodules(exported(NET, (X,)), [(X,), (sample,)])


class Counted(list):
    """Samples that know which of them failed, as the command line's do."""

    at = None

    def __iter__(self):
        for self.at, sample in enumerate(super().__iter__()):
            yield sample
        self.at = None


def test_the_list_is_not_iterated_again_after_a_failure():
    first, outside = torch.tensor([[0, 1]]), torch.tensor([[2, 3]])
    samples = Counted([(first,), (outside,), (first,)])
    with pytest.raises(IndexError):
        quantizer_of().quantize_with_submodules(exported(torch.nn.Embedding(2, 4), (first,)), samples)
    assert samples.at == 1


def test_a_failure_of_other_reasons_stays_as_it_is():
    quantizer = quantizer_of()
    quantizer.transform_for_annotation = lambda model: 1 / 0
    with pytest.raises(ZeroDivisionError):
        quantizer.quantize_with_submodules(exported(NET, (X,)), [(X,)])
