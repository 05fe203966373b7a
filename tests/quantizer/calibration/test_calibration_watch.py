"""Calibration that teaches no range is warned about once; real samples are not."""

import re

import pytest
import torch
import torch.nn as nn
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.backends.arm.quantizer.arm_quantizer import get_symmetric_a8w4_quantization_config
from lowering import HISTOGRAM, PROFILES, WIDE, min_max
from small import Lambda, image
from spying import doubts
from stubborn import calibrated, exported, prepare, quantizer_of
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

NET = Lambda(lambda m, x: torch.relu(m.conv(x))).eval()


def quantizer(config=None, profile=PROFILES[0]):
    return quantizer_of(profile=profile, config=config)


def told(work):
    """What is warned about while something runs."""
    return doubts(work)[1]


def told_of(samples, net=NET, ours=None):
    """What is warned about while a net is quantised by one call."""
    ours = ours or quantizer()
    return told(lambda: ours.quantize_with_submodules(exported(net, samples[0]), samples))


def told_step_by_step(samples, net=NET, ours=None):
    """What is warned about while a net is quantised as torchao's own functions do it."""
    ours = ours or quantizer()
    return told(lambda: calibrated(exported(net, samples[0]), ours, samples))


SAMPLES = {
    "one": ([image()], "calibrated on a single sample"),
    "the same again": ([image()] * 3, "calibrated on 3 samples that are all the same"),
    "zeros": ([(torch.zeros_like(image()[0]),)] * 2, "input 'x' is 0 everywhere in the calibration data"),
    "zeros with a sign": ([(-torch.zeros_like(image()[0]),)] * 2, "input 'x' is 0 everywhere in the calibration data"),
    "a constant": ([(torch.full_like(image()[0], 0.5),)], "input 'x' is 0.5 everywhere"),
}


@pytest.mark.parametrize(("samples", "says"), SAMPLES.values(), ids=SAMPLES)
def test_samples_of_little_use_are_warned_about(samples, says):
    (message,) = told_of(samples)
    assert says in message


def test_a_sample_is_one_whichever_observers_of_its_input_it_reaches():
    net = Lambda(lambda m, x: (x - torch.ones(1, 4, 8, 8)).square().sum(-1) + x.sum(-1))
    for samples, says in ([image()], "a single sample"), ([image()] * 3, "3 samples"):
        (message,) = told_of(samples, net)
        assert f"calibrated on {says}" in message


class Trainable(nn.Module):
    """Reads parameters as numbers, and as bounds of what is computed with them."""

    def __init__(self):
        super().__init__()
        self.centre = nn.Parameter(torch.linspace(-1, 1, 8))
        self.factor = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        scores = (x @ x.transpose(-1, -2)) * self.factor
        return (x - self.centre).square().sum(-1), scores.softmax(-1), x / (x.norm(dim=-1, keepdim=True) + self.factor)


@pytest.fixture
def always():
    """PyTorch repeats its warnings."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("profile", ["TOSA-1.0+INT", "TOSA-1.0+INT+int16"])
def test_of_parameters_that_are_read_as_numbers_torch_does_not_warn(profile, recwarn):
    ours = quantizer(WIDE if "int16" in profile else None, profile)
    samples = [image(seed) for seed in range(2)]
    calibrated(exported(Trainable(), samples[0]), ours, samples)
    assert not [each for each in recwarn if "requires_grad" in str(each.message)]


@pytest.mark.parametrize("is_qat", [False, True])
def test_a_model_that_is_converted_as_it_was_prepared_is_warned_about_once(is_qat):
    ours = quantizer(get_symmetric_quantization_config(is_qat=is_qat))
    step = prepare_qat_pt2e if is_qat else prepare_pt2e
    prepared = step(exported(NET, image()), ours)
    (message,) = told(lambda: convert_pt2e(prepared))
    assert "converted without calibration" in message
    assert "before convert_pt2e" in message


def test_so_is_a_list_without_samples():
    (message,) = told(lambda: quantizer().quantize_with_submodules(exported(NET, image()), []))
    assert "converted without calibration" in message


def test_what_is_loaded_from_a_calibrated_model_is_not():
    prepared = [prepare_pt2e(exported(NET, image()), quantizer()) for _ in range(2)]
    for _ in range(2):
        prepared[0](torch.randn_like(image()[0]))
    prepared[1].load_state_dict(prepared[0].state_dict())
    assert told(lambda: convert_pt2e(prepared[1])) == []


def test_a_sample_more_for_a_loaded_model_is_no_single_sample():
    prepared = [prepare_pt2e(exported(NET, image()), quantizer()) for _ in range(2)]
    for seed in range(2):
        prepared[0](*image(seed))
    prepared[1].load_state_dict(prepared[0].state_dict())
    prepared[1](*image(2))
    assert told(lambda: convert_pt2e(prepared[1])) == []


def test_the_flow_of_pt2e_is_watched_as_well():
    ours = quantizer()
    for samples, says in (([image()], "single sample"), ([image(), image(1)], ""), ([image()], "single sample")):
        messages = told_step_by_step(samples, ours=ours)
        assert len(messages) == bool(says)
        assert says in "".join(messages)


def with_a(value, sample):
    (x,) = sample
    x[0, 0, 0, 0] = value
    return (x,)


@pytest.mark.filterwarnings("ignore:.*stay float")
@pytest.mark.parametrize(("value", "name"), [(torch.nan, "NaN"), (torch.inf, "infinity"), (-torch.inf, "infinity")])
def test_the_first_sample_without_numbers_is_named_and_what_reads_the_input_stays_float(value, name):
    ours = quantizer()
    samples = [image(0), with_a(value, image(1)), image(2), with_a(value, image(3))]
    (message,) = told_step_by_step(samples, ours=ours)
    assert message.startswith(f"calibration sample 1 has {name} in input 'x'")
    assert {each.op for each in ours.left_float} >= {"aten::conv2d"}
    assert all(each.reason.endswith(f"its values include {name}") for each in ours.left_float)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf])
def test_the_first_sample_with_an_infinity_that_an_observer_passes_over_is_named(value):
    ours = quantizer(HISTOGRAM)
    samples = [image(0), with_a(value, image(1)), image(2), with_a(value, image(3))]
    (message,) = told_step_by_step(samples, ours=ours)
    assert message.startswith(
        "calibration sample 1 has infinity in input 'x': its range is learnt from the other values"
    )
    assert ours.left_float == ()


def test_the_infinities_of_a_mask_are_passed_over_without_a_word():
    net = Lambda(lambda m, x, mask: torch.softmax(m.conv(x) + mask, -1)).eval()
    mask = torch.full((8, 8), -torch.inf).triu(1)
    assert told_of([(*image(seed), mask) for seed in range(3)], net, quantizer(HISTOGRAM)) == []


def test_a_mask_of_infinity_is_no_nan():
    net = Lambda(lambda m, x, mask: torch.softmax(m.conv(x) + mask, -1)).eval()
    mask = torch.zeros(8, 8).masked_fill(torch.ones(8, 8).triu(1) > 0, -torch.inf)
    assert told_of([(*image(seed), mask) for seed in range(3)], net) == []


TWO_INPUTS = Lambda(lambda m, x, y: torch.relu(m.conv(x)) + m.conv_b(y)).eval()
BRANCHES = Lambda(lambda m, x: torch.cond(x.sum() > 0, lambda x: torch.relu(x) * 2, lambda x: torch.relu(x) * 3, (x,)))
SEVERAL = {
    "several": (NET, [image(seed) for seed in range(3)]),
    "one input that stays the same": (TWO_INPUTS, [(*image(seed), *image(9)) for seed in range(3)]),
    "inputs of branches": (BRANCHES, [(torch.rand(1, 4) + 1,), (-torch.rand(1, 4) - 1,), (torch.rand(1, 4),)]),
}


def calibrated_at(*samples, sizes=None):
    """What is warned about where an exported net is calibrated at other sizes."""
    model = exported(NET, image(), dynamic_shapes=sizes)
    return told(lambda: calibrated(model, quantizer(), samples))


def test_a_batch_of_several_is_no_single_sample():
    several = torch.cat([*image(0), *image(1), *image(2)])
    assert calibrated_at((several,)) == []
    (message,) = calibrated_at((torch.cat(image() * 3),))
    assert "calibrated on a single sample" in message


def test_samples_of_other_sizes_than_the_exported_are_warned_about_once():
    other = torch.rand(1, 4, 12, 8)
    (message,) = calibrated_at((other,), (other + 1,), *map(image, range(2)))
    assert "input 'x' was calibrated at (1, 4, 12, 8), and the net was exported for (1, 4, 8, 8)" in message
    height = {"x": {2: torch.export.Dim("height", min=4, max=16)}}
    assert calibrated_at((other,), (other + 1,), sizes=height) == []


@pytest.mark.parametrize(("net", "samples"), SEVERAL.values(), ids=SEVERAL)
def test_several_samples_are_no_reason(net, samples):
    assert told_of(samples, net) == []


def test_a_config_for_training_is_not_for_calibration():
    """The config of int4 weights is one by default."""
    several = [image(seed) for seed in range(8)]
    training = get_symmetric_quantization_config(is_qat=True)
    assert "is_qat=False" in " ".join(told_of(several, ours=quantizer(training)))
    assert "is_qat=False" in " ".join(told_step_by_step(several, ours=quantizer(training)))
    weights_of_4_bits = quantizer(get_symmetric_a8w4_quantization_config(), "TOSA-1.0+INT+int4")
    assert "is_qat=False" in " ".join(told_of(several, ours=weights_of_4_bits))
    assert told_of(several, ours=quantizer(get_symmetric_quantization_config())) == []
    assert told(lambda: prepare(NET, quantizer(training), several[0], is_qat=True)(*several[0])) == []


def test_training_is_for_quantisation_aware_training_and_for_nothing_else():
    net = nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Dropout()).train()
    config = get_symmetric_quantization_config(is_qat=True)
    assert told(lambda: prepare(net, quantizer(config), image(), is_qat=True)) == []
    (message,) = told(lambda: prepare(net, quantizer(), image()))
    assert message.startswith("the model was exported in training mode")
    assert told(lambda: prepare(net.eval(), quantizer(), image())) == []


def spoilt(sample, number, value):
    """A sample whose first value is another, if it is that of a number."""
    sample = sample.clone()
    if number == 3:
        sample.view(-1)[0] = value
    return sample


def normal(number, *shape):
    return torch.randn(*(shape or (1, 4, 32, 32)), generator=torch.Generator().manual_seed(number))


def uniform(number, *shape):
    return torch.rand(*(shape or (1, 4, 32, 32)), generator=torch.Generator().manual_seed(number))


SPOILT = {
    "an outlier": (lambda n: spoilt(normal(n), n, 1e6), r"the largest value is 1e\+06, .*e\+05 times as much"),
    "a smaller outlier": (lambda n: spoilt(normal(n), n, 1e3), r"the largest value is 1e\+03"),
    "an outlier among few values": (lambda n: spoilt(normal(n, 1, 4, 2, 2), n, 1e6), r"the largest value is 1e\+06"),
    "one sample of another scale": (lambda n: normal(n) * (1e30 if n == 3 else 1), r"e\+30, .* times as much"),
    "half of them": (lambda n: normal(n) * (1e30 if n % 2 else 1), r"e\+30, .* times as much"),
    "one of few values": (lambda n: normal(n, 1, 4, 2, 1) * (1e6 if n == 3 else 1), r"e\+06, .* times as much"),
    "all of them": (lambda n: normal(n) * 1e30, r"has values of 3.*e\+30"),
    "values below the least step": (lambda n: normal(n) * 1e-20, "scale the input up"),
}


@pytest.mark.parametrize("config", [HISTOGRAM, min_max()], ids=["histogram", "min-max"])
@pytest.mark.parametrize("name", SPOILT)
def test_samples_that_spoil_the_net_are_warned_about_by_the_name_of_the_input(name, config):
    make, says = SPOILT[name]
    samples = [(make(number),) for number in range(8)]
    message, *others = told_of(samples, ours=quantizer(config))
    assert message.startswith("input 'x'")
    assert re.search(says, message), message
    assert all("of the float net are left" in other for other in others)


def spectrum(number, power):
    """A power spectrum of a tone that comes and goes, a third of the samples silent."""
    time = torch.arange(8192) / 8000
    loudness = 0.0 if number % 3 == 0 else 1.0
    tone = loudness * uniform(number, 8).repeat_interleave(1024) ** 3 * torch.sin(2764.6 * time)
    sound = tone + 1e-4 * normal(number, 8192)
    window = torch.hann_window(256)
    return torch.stft(sound, 256, 64, window=window, return_complex=True).abs()[None, None] ** power


ORDINARY = {
    "images to 255": lambda n: (uniform(n) * 255).round(),
    "dark images": lambda n: (uniform(n) ** 6 * 255).round(),
    "images to 1": uniform,
    "normal": normal,
    "log-normal": lambda n: normal(n).exp(),
    "Laplace": lambda n: normal(n).sign() * -uniform(n).log(),
    "linear spectra": lambda n: spectrum(n, 2),
    "magnitudes of spectra": lambda n: spectrum(n, 1),
    "log spectra": lambda n: (spectrum(n, 2) + 1e-10).log(),
    "audio with silence": lambda n: normal(n, 1, 1, 1, 4096) * (1e-4 if n % 3 == 0 else 1.0),
    "clicks": lambda n: 0.01 * normal(n) + (uniform(n + 99) > 0.999),
    "one-hots": lambda n: (uniform(n, 1, 1, 1000) == uniform(n, 1, 1, 1000).max()).float(),
    "embeddings": lambda n: 0.02 * normal(n, 1, 16, 256),
    "integers": lambda n: (uniform(n) * 1000).floor(),
    "a mask": lambda n: (uniform(n) > 0.5) * torch.finfo(torch.float32).min,
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_samples_are_no_reason(name):
    samples = [(ORDINARY[name](number),) for number in range(8)]
    assert told_of(samples, Lambda(lambda m, x: torch.relu(x) * 0.5).eval()) == []


def test_each_spoilt_input_is_warned_about_once_and_the_flow_of_pt2e_as_well():
    samples = [(spoilt(normal(n), n, 1e6), spoilt(normal(9 + n), n, 1e6)) for n in range(8)]
    messages = told_step_by_step(samples, TWO_INPUTS)
    assert sorted(message.partition(":")[0] for message in messages) == ["input 'more_0'", "input 'x'"]


def test_training_is_looked_at_for_its_first_batches():
    watched = prepare(NET, quantizer(get_symmetric_quantization_config(is_qat=True)), image(), is_qat=True)
    calibrated = prepare(NET, quantizer(min_max()), image())
    looks = []
    for model in (watched, calibrated):
        for seed in range(70):
            model(*image(seed))
        (seen,) = model.activation_post_process_0.watch._inputs.values()
        looks.append(seen.count)
    assert looks == [64, 70]
