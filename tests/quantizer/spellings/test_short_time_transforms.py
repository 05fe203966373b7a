"""Spectrograms are convolutions of the signal, and are one delegate with the rest."""

from typing import ClassVar

import pytest
import torch
from graph_changes import changes
from lowering import HISTOGRAM, PROFILES, tosa
from ratios import ours_exactly, ratio, ratio_of_rounded_borders
from small import Lambda
from spelled import Delegated, check_one_exact
from stubborn import calibrated, exported, quantizer_of

from safe_arm.quantizer.spellings.complex_pairs import write_complex_pairs

#: A fast transform adds in another order than a convolution, in 32 bits.
CLOSE = {"atol": 1e-4, "rtol": 1e-4}
WINDOW = torch.hann_window(32)
BANDS = torch.rand(8, 17, generator=torch.Generator().manual_seed(3)).pow(8)
INPUTS = (torch.randn(1, 256, generator=torch.Generator().manual_seed(1)),)


def spectra(x, window=WINDOW, **how):
    return torch.stft(x, 32, 8, window=window, return_complex=True, **how)


def signal(z, window=WINDOW, **how):
    return torch.istft(z, 32, 8, window=window, **how)


#: As torchaudio, librosa's users and speech enhancement write them.
RULES = {
    "its parts": lambda m, x: torch.view_as_real(spectra(x)),
    "powers of mel bands, their logarithm": lambda m, x: (BANDS @ spectra(x).abs().pow(2) + 1e-6).log(),
    "decibels": lambda m, x: 10 * (BANDS @ spectra(x).abs().square()).clamp(min=1e-10).log10(),
    "a mask on the way to the signal": lambda m, x: signal(spectra(x) * spectra(x).abs().sigmoid()),
}


class TestSpectrograms(Delegated):
    step = staticmethod(write_complex_pairs)
    inputs = INPUTS
    written = RULES
    lowered = ("a mask on the way to the signal",)
    gone = ("stft.",)
    tolerance: ClassVar = CLOSE
    kept: ClassVar = {
        "a window that is computed": lambda m, x: spectra(x, x[0, :32]).abs(),
        "a signal that is longer than its frames": lambda m, x: signal(spectra(x), length=900),
    }


#: Whether the numbers are normalised, whether frames are padded, the window's length, whether there is a batch, and the
#: signal's length.
ROWS = (
    (True, True, None, True, None),
    (False, False, 20, False, None),
    (True, False, None, False, 80),
    (False, True, 20, True, 80),
)


@pytest.mark.parametrize("one_sided", [None, True, False])
def test_every_spelling_is_written(one_sided):
    for normalized, centred, size, is_batched, length in ROWS:
        x = torch.randn(*[2] * is_batched, 100, generator=torch.Generator().manual_seed(3))
        window = torch.hann_window(size or 32) + 0.1
        how = {"win_length": size, "normalized": normalized, "onesided": one_sided, "center": centred}

        def rule(m, x, window=window, how=how, length=length):
            z = spectra(x, window, **how)
            is_defined = how["center"] or how["win_length"] is None
            both = [z.real, z.imag]
            return [*both, signal(z, window, length=length, **how)] if is_defined else both

        model = exported(Lambda(rule), (x,))
        wanted = model(x)
        assert changes(write_complex_pairs, model)
        torch.testing.assert_close(model(x), wanted, **CLOSE)
        assert "stft." not in str(model.graph)


@pytest.mark.parametrize("name", ["its parts", "powers of mel bands, their logarithm"])
def test_it_is_as_near_as_rounded_borders(name):
    samples = [(INPUTS[0].roll(shift, -1) * 2**shift,) for shift in range(3)]
    graph = calibrated(exported(Lambda(RULES[name]), INPUTS), quantizer_of(config=HISTOGRAM), samples)
    assert ratio(graph, RULES[name], samples) > ratio_of_rounded_borders(RULES[name], samples) - 1


class Features(torch.nn.Module):
    def forward(self, x):
        return (BANDS @ spectra(x).abs().square() + 1e-4).log()


class Spotter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.features = Features()
        self.layer = torch.nn.Conv1d(8, 4, 3)

    def forward(self, x):
        return self.layer(self.features(x))


def test_bands_that_are_set_float_are_in_the_delegate_of_a_profile_with_floats():
    """A tone that dies away: in int8, the bands have no decibel left."""
    fading = torch.exp(-torch.arange(256) / 25)
    samples = [(INPUTS[0].roll(shift, -1) * fading,) for shift in range(4)]
    ratios = []
    for is_float in (False, True):
        quantizer = quantizer_of(profile=PROFILES[1], config=HISTOGRAM)
        if is_float:
            quantizer.set_module_name("features", None)
        graph = calibrated(exported(Spotter().eval(), INPUTS), quantizer, samples)
        ratios.append(ratio(graph, lambda m, x: Spotter()(x), samples))
    assert ratios[0] < 10, ratios
    assert ratios[1] > 30
    check_one_exact(graph, INPUTS, tosa(PROFILES[1]))


def test_a_spectrogram_is_one_exact_delegate_in_both_profiles(profile):
    ours_exactly(RULES["decibels"], [INPUTS], profile)
