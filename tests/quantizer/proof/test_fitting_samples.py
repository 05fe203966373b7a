"""What is no graph module is refused, and a failure says which sample does not fit the model."""

import pytest
import torch
from small import Built, image
from stubborn import exported, quantizer_of

from safe_arm import UsageError
from safe_arm.quantizer.proof.fitting_samples import samples_for

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


#: Nets that write into their input, some of them so that the caller sees it.
WRITERS = {
    "relu": torch.nn.Sequential(torch.nn.ReLU(inplace=True), torch.nn.Conv2d(4, 4, 1)),
    "leaky relu": torch.nn.Sequential(torch.nn.LeakyReLU(inplace=True), torch.nn.Conv2d(4, 4, 1)),
    "sigmoid": Built(lambda m, x: x.sigmoid_() + 1),
    "product": Built(lambda m, x: x.mul_(2)),
}


@pytest.mark.parametrize("net", WRITERS.values(), ids=WRITERS)
def test_samples_stay_as_they_are(net):
    samples = [image(seed) for seed in range(3)]
    before = [sample[0].clone() for sample in samples]
    model = exported(net, (X.clone(),))
    graph_module = quantizer_of().quantize_with_submodules(model, samples)
    for (sample,), value in zip(samples, before, strict=True):
        assert torch.equal(sample, value)
        expected = model(value.clone())
        assert float((graph_module(value.clone()) - expected).abs().max()) < 0.02 * float(expected.abs().max())


def test_samples_of_a_net_that_writes_nowhere_are_not_copied():
    samples = [(X,)]
    assert samples_for(exported(NET, (X,)), samples) is samples


def test_each_turn_through_the_samples_has_copies_of_its_own():
    samples = [(X,), (X + 1,)]
    copied = samples_for(exported(WRITERS["relu"], (X.clone(),)), samples)
    for _ in range(2):
        turn = list(copied)
        assert all(torch.equal(given[0], sample[0]) for given, sample in zip(turn, samples, strict=True))
        turn[0][0].zero_()
    assert copied[0] is samples[0]
    assert len(copied) == 2
