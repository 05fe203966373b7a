"""Fourier transforms of a constant length are products with matrices, and are one delegate with the rest."""

from typing import ClassVar

import pytest
import torch
from graph_changes import changes
from lowering import HISTOGRAM
from ratios import ratio, ratio_of_rounded_borders
from small import Lambda
from spelled import Delegated
from stubborn import calibrated, exported, quantizer_of

from safe_arm.core.island import op_name
from safe_arm.quantizer.spellings.complex_pairs import write_complex_pairs
from safe_arm.quantizer.spellings.fourier_transforms import LARGEST_MATRIX

fft = torch.fft
#: A fast transform adds in another order than a product with a matrix, in 32 bits.
CLOSE = {"atol": 1e-4, "rtol": 1e-4}
INPUTS = (torch.randn(1, 6, 10, generator=torch.Generator().manual_seed(1)),)
FILTER = torch.view_as_complex(torch.randn(6, 6, 2, generator=torch.Generator().manual_seed(2)))
FILTERS = torch.stack([FILTER, FILTER.conj().resolve_conj() * 1j])
OVER_ONE = ("fft", "ifft", "rfft", "ihfft", "irfft", "hfft")
OVER_SEVERAL = (
    "fft2",
    "ifft2",
    "rfft2",
    "ihfft2",
    "irfft2",
    "hfft2",
    "fftn",
    "ifftn",
    "rfftn",
    "ihfftn",
    "irfftn",
    "hfftn",
)


def reals(x):
    """Real numbers as they are, complex ones as pairs."""
    return torch.view_as_real(x.resolve_conj()).flatten(-2) if x.is_complex() else x


def some_modes(x):
    spectrum = fft.rfft(x)
    low = torch.einsum("bcm,cdm->bdm", spectrum[..., :3], FILTER[:, :, None].expand(-1, -1, 3))
    return low, spectrum[..., 5], torch.zeros(1, 6, 6, dtype=torch.complex64)


def written_in_part(m, x):
    low, high, modes = some_modes(x)
    modes = torch.slice_scatter(modes, low, 2, 0, 3)
    return fft.irfft(torch.select_scatter(modes, high, 2, 4), n=10)


def written_in_place(m, x):
    """As Fourier blocks of forecasters write the modes that they keep."""
    low, high, modes = some_modes(x)
    modes[..., :3] = low
    modes[..., 4] = high
    return fft.irfft(modes, n=10)


class Filter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factors = torch.nn.Parameter(FILTER)

    def forward(self, x):
        return fft.irfft(fft.rfft(x) * self.factors, n=10)


RULES = {
    "the parts of a spectrum": lambda m, x: reals(fft.rfft(x)),
    "tokens mixed over two dimensions": lambda m, x: fft.fft(fft.fft(x), dim=-2).real,
    "a filter": lambda m, x: fft.irfft(fft.rfft(x) * FILTER, n=10),
    "a filter of an image": lambda m, x: fft.irfft2(fft.rfft2(x, norm="ortho") * FILTER, s=(6, 10), norm="ortho"),
    "a correlation": lambda m, x: fft.irfft(fft.rfft(x) * fft.rfft(x.roll(1, -1)).conj()),
    "an envelope": lambda m, x: fft.ifft(fft.fft(x) * torch.arange(10)).abs(),
    "a length that is squared": lambda m, x: fft.rfft(x).abs() ** 2,
    "a length over which is divided": lambda m, x: (lambda z: fft.irfft(z / (z.abs() + 1)))(fft.rfft(x)),
    "modes that are written in part": written_in_part,
    "a product of matrices": lambda m, x: reals(fft.rfft(x) @ FILTER.T),
    "its angles": lambda m, x: fft.rfft(x + 1)[..., 1:-1].angle(),
    "modes that are contracted": lambda m, x: fft.irfft(torch.einsum("bcm,dcm->bdm", fft.rfft(x), FILTERS)),
    "modes that are padded": lambda m, x: fft.irfft(torch.nn.functional.pad(fft.rfft(x)[..., :4] * 0.5, (0, 2)), n=10),
    "its middle": lambda m, x: fft.fftshift(fft.fft(x, dim=1), dim=1).real,
    "from its middle": lambda m, x: fft.ifft(fft.ifftshift(fft.fft(x))).real,
}


class TestTransforms(Delegated):
    step = staticmethod(write_complex_pairs)
    inputs = INPUTS
    also = ((INPUTS[0] * 3,),)
    written = RULES
    lowered = ("a filter of an image", "modes that are written in part", "a length over which is divided")
    gone = ("aten.fft_fft.", "aten.fft_rfft", "aten.fft_irfft", "aten.fft_ifft.")
    tolerance: ClassVar = CLOSE
    kept: ClassVar = {
        "no complex number": lambda m, x: x * x,
        "what is read complex": lambda m, x: torch.linalg.vector_norm(fft.rfft(x)),
        "a complex output": lambda m, x: fft.rfft(x),
        "a matrix that is too large": lambda m, x: reals(fft.rfft(x, n=LARGEST_MATRIX)),
        "a value that is written in place": written_in_place,
        "a power that is no square": lambda m, x: x.abs() ** 2,
    }


#: Arguments of the functions over one dimension, and of those over several.
OF_ONE = ((None, -1, None), (4, 0, "ortho"), (12, 1, "forward"))
OF_SEVERAL = ((None, (-2, -1), None), ((4, 8), (0, 2), "ortho"), ((7, 3), (1, 0), "forward"))
ALL_DIMS = ((None, None, None), ((4, 8), None, "ortho"))


def _rows(name):
    if name in OVER_ONE:
        return [{"n": length, "dim": dim, "norm": norm} for length, dim, norm in OF_ONE]
    rows = OF_SEVERAL + ALL_DIMS if name.endswith("n") else OF_SEVERAL
    return [{"s": sizes, "dim": dims, "norm": norm} for sizes, dims, norm in rows]


@pytest.mark.parametrize("name", [*OVER_ONE, *OVER_SEVERAL])
def test_every_spelling_is_written(name):
    x = torch.randn(3, 6, 10, generator=torch.Generator().manual_seed(3))
    for how in _rows(name):
        model = exported(Lambda(lambda m, x, how=how: reals(getattr(fft, name)(x, **how))), (x,))
        wanted = model(x)
        assert changes(write_complex_pairs, model), how
        torch.testing.assert_close(model(x), wanted, **CLOSE)
        assert f"aten.fft_{name}" not in str(model.graph), how


def test_a_parameter_of_complex_numbers_is_one_of_parts():
    model = exported(Filter(), INPUTS)
    write_complex_pairs(model)
    dtypes = [each.dtype for name, each in model.named_parameters() if "_of_" in name]
    assert dtypes == [torch.float32, torch.float32]


def test_a_contraction_sums_over_both_parts_at_once():
    model = exported(Lambda(RULES["modes that are contracted"]), INPUTS)
    write_complex_pairs(model)
    names = [op_name(each) for each in model.graph.nodes]
    assert names.count("aten::einsum") == 2
    assert "aten::sub" not in names


def times_itself(m, x):
    length = fft.rfft(x).abs()
    return length * length


@pytest.mark.parametrize(
    "rule", [RULES["a length that is squared"], times_itself, lambda m, x: fft.rfft(x).abs().square()]
)
def test_a_length_that_is_squared_has_no_root(rule):
    model = exported(Lambda(rule), INPUTS)
    write_complex_pairs(model)
    assert "sqrt" not in str(model.graph)


@pytest.mark.parametrize(
    ("name", "loss"),
    [("the parts of a spectrum", 1), ("a length that is squared", 2.5)],
)
def test_it_is_as_near_as_rounded_borders(name, loss):
    """A length is that of parts in int8."""
    samples = [(INPUTS[0].roll(shift, -1),) for shift in range(4)]
    graph = calibrated(exported(Lambda(RULES[name]), INPUTS), quantizer_of(config=HISTOGRAM), samples)
    assert ratio(graph, RULES[name], samples) > ratio_of_rounded_borders(RULES[name], samples) - loss


def test_what_is_written_in_place_is_functional_before():
    graph = calibrated(exported(Lambda(written_in_place), INPUTS), quantizer_of(config=HISTOGRAM), [INPUTS])
    assert "aten.fft_" not in str(graph.graph)
    assert ratio(graph, written_in_place, [INPUTS]) > 30


class State(torch.nn.Module):
    """A mean of spectra over steps."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(1, 6, 6, dtype=torch.complex64))

    def forward(self, x):
        self.mean.copy_(self.mean * 0.5 + fft.rfft(x))
        return self.mean.abs()


def test_a_state_of_complex_numbers_is_no_constant():
    model = exported(State(), INPUTS)
    net = State()
    write_complex_pairs(model)
    for step in range(3):
        sample = INPUTS[0].roll(step, -1)
        torch.testing.assert_close(model(sample), net(sample), **CLOSE)
