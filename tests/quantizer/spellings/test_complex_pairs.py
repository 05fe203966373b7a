"""What is computed of complex numbers is computed of their parts, and is one delegate with the rest."""

from typing import ClassVar

import torch
from lowering import HISTOGRAM
from ratios import ours_exactly, ratio, ratio_of_rounded_borders
from small import Lambda, together
from spelled import Delegated, left_on_the_cpu
from stubborn import calibrated, exported, quantizer_of

from safe_arm.quantizer.spellings.complex_pairs import write_complex_pairs

ANGLES = torch.outer(torch.arange(6.0), torch.tensor([1.0, 0.3, 0.1, 0.03]))
POSITIONS = torch.polar(torch.ones_like(ANGLES), ANGLES)


def complexes(x):
    return torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))


def rotary(m, x, y):
    """As Llama's own code rotates queries and keys."""
    positions = POSITIONS.view(1, 1, 6, 4)
    turned = [torch.view_as_real(complexes(each.float()) * positions).flatten(3).type_as(each) for each in (x, y)]
    return turned[0] @ turned[1].mT


def reals(x):
    return torch.view_as_real(x).flatten(-2)


INPUTS = tuple(torch.randn(1, 2, 6, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(2))
#: Rotations in the order of the heads, as other codes have them.
RULES = {
    "rotary positions": rotary,
    "positions in another order": lambda m, x, y: reals(
        complexes(x.transpose(1, 2)) * POSITIONS.unsqueeze(1)
    ).transpose(1, 2),
    "a mask of a spectrum": lambda m, x, y: reals(complexes(x) * complexes(y)),
    "the conjugate": lambda m, x, y: reals(complexes(x) * complexes(y).conj()),
    "a sum of products": lambda m, x, y: reals(complexes(x) * POSITIONS + complexes(y) - complexes(x)),
    "a sum with a number": lambda m, x, y: reals((complexes(x) + 1) * POSITIONS - 0.5),
    "real factors": lambda m, x, y: reals(complexes(x) * y[..., :4] * 0.5),
    "parts": lambda m, x, y: (lambda z: z.real + z.imag)(complexes(x) * POSITIONS),
    "given parts": lambda m, x, y: reals(torch.complex(x, y)[..., :4] * POSITIONS),
    "the length of a product": lambda m, x, y: (complexes(x + 2) * POSITIONS).abs(),
    "a length and an angle": lambda m, x, y: reals(torch.polar(x.abs(), y)),
}


def eigenvalues(x):
    return torch.linalg.eigvals(x[..., :4, :4])


class TestComplexNumbers(Delegated):
    step = staticmethod(write_complex_pairs)
    inputs = INPUTS
    written = RULES
    lowered = ("a mask of a spectrum",)
    gone = ("view_as_complex", "view_as_real")
    kept: ClassVar = {
        "an eigenvalue": lambda m, x, y: eigenvalues(x).real,
        "a product with an eigenvalue": lambda m, x, y: reals(
            torch.linalg.eigvals(x[..., :4, :4]) * complexes(y)[..., 0, :]
        ),
        "ones around": lambda m, x, y: reals(torch.nn.functional.pad(complexes(x), (0, 1), value=1.0)),
        "a sum with a complex number": lambda m, x, y: reals(complexes(x) + 1j),
        "a sum with real numbers": lambda m, x, y: reals(complexes(x) + y[..., :4]),
        "twice as many bits": lambda m, x, y: reals(complexes(x.double())).float(),
        "an angle of real numbers": lambda m, x, y: x.angle(),
        "a length of real numbers": lambda m, x, y: x.abs(),
    }


def test_the_rotation_is_as_near_as_rounded_borders():
    samples = [tuple(each.roll(shift, -2) for each in INPUTS) for shift in range(4)]
    graph = calibrated(exported(Lambda(rotary), INPUTS), quantizer_of(config=HISTOGRAM), samples)
    assert ratio(graph, rotary, samples) > ratio_of_rounded_borders(rotary, samples) - 1


def test_an_angle_leaves_one_operator_on_the_cpu():
    """TOSA has no arc tangent of two operands."""

    def rule(m, x, y):
        return (complexes(x) * POSITIONS).angle()

    graph = calibrated(exported(Lambda(rule), INPUTS), quantizer_of(config=HISTOGRAM), [INPUTS])
    torch.testing.assert_close(exported(Lambda(rule), INPUTS)(*INPUTS), rule(None, *INPUTS))
    assert left_on_the_cpu(graph, INPUTS) == ["aten::atan2"]


def test_several_are_one_delegate_in_both_profiles(profile):
    ours_exactly(together(RULES, "rotary positions", "the conjugate", "real factors"), [INPUTS], profile)
