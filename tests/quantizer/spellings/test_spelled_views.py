"""Operators that move values and that no annotator knows are written with operators that one does."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from lowering import PROFILES
from ratios import both_ratios
from small import Lambda, image
from spelled import Spelling, Whole, check_whole
from stubborn import exported

from safe_arm._compat.tested_releases import executorch_version, parse
from safe_arm.quantizer.spellings.spellings import spell_out_operators

VERSION = parse(executorch_version())

INPUTS = image()
VIEWS = {
    "in the shape of another, behind a norm": lambda m, x: F.layer_norm(x.transpose(1, 3), (4,)).reshape_as(x),
    "as wide as another": lambda m, x: torch.cat((x, x.amax(1, keepdim=True).expand_as(x)), 1),
    "broadcast": lambda m, x: torch.cat((x, torch.broadcast_to(x.amax(1, keepdim=True), x.shape)), 1),
    "in the shape of another": lambda m, x: x.relu().reshape_as(x.flatten(2)),
    "transposed at the end": lambda m, x: x.relu().mT,
    "transposed with a conjugate of itself": lambda m, x: x.relu().mH + x.relu().adjoint(),
    "reversed dimensions": lambda m, x: x.relu()[0, 0].T,
    "swapped axes": lambda m, x: x.relu().swapaxes(1, 2),
    "swapped dimensions": lambda m, x: x.relu().swapdims(1, 2),
    "narrowed": lambda m, x: x.relu().narrow(2, 1, 4),
    "narrowed from the end": lambda m, x: x.relu().narrow(2, -4, 4),
    "split behind the end": lambda m, x: x.relu().tensor_split((1, 30), 1)[0],
    "split in sections": lambda m, x: torch.cat(x.tensor_split(3, 1)[::-1], 1),
    "split at places": lambda m, x: torch.cat(x.tensor_split((1, 3), 1)[::-1], 1),
    "split into columns": lambda m, x: torch.cat(x.hsplit(2)[::-1], 1),
    "a row split into columns": lambda m, x: torch.cat(x.relu()[0, 0, 0].hsplit((1, 3))[::-1], 0),
    "split into rows": lambda m, x: torch.cat(x.relu()[0].vsplit(2)[::-1], 0),
    "split in depth": lambda m, x: torch.cat(x.dsplit((2, 5))[::-1], 2),
    "a copied diagonal": lambda m, x: torch.diagonal_copy(x.relu(), 0, 2, 3),
    "shuffled": lambda m, x: F.channel_shuffle(x.relu(), 2),
    "windows": lambda m, x: x.relu().unfold(-1, 3, 2),
    "windows of an image": lambda m, x: x.relu().unfold(2, 4, 2).unfold(3, 4, 4),
    "beside each other": lambda m, x: torch.hstack((x.relu(), x)),
    "rows beside each other": lambda m, x: torch.hstack((x.relu()[0, 0, 0], x[0, 0, 0])),
    "below each other": lambda m, x: torch.vstack((x.relu()[0, 0, 0], x[0, 0, 0])),
    "behind each other": lambda m, x: torch.dstack((x.relu()[0, 0, 0], x[0, 0, 0])),
    "columns": lambda m, x: torch.column_stack((x.relu()[0, 0, 0], x[0, 0])),
    "turned": lambda m, x: x.relu().rot90(1, (2, 3)) + x.rot90(-1, (2, 3)),
    "turned upside down": lambda m, x: x.relu().rot90(2, (2, 3)),
    "turned round": lambda m, x: x.relu().rot90(4, (2, 3)) * 2,
    "diagonal": lambda m, x: x.relu().diagonal(0, 2, 3),
    "a matrix of a diagonal": lambda m, x: torch.diag_embed(x.relu(), 2, 1, 3)[..., :-1, :],
    "a matrix of a diagonal below": lambda m, x: torch.diag_embed(x[0].relu(), -1),
    "a matrix of the main diagonal": lambda m, x: torch.diag_embed(x[0].relu()),
    "a mesh": lambda m, x: torch.stack(torch.meshgrid(x[0, 0, 0].relu(), x[0, 0, 1], indexing="xy")),
    "all pairs": lambda m, x: torch.cartesian_prod(x[0, 0, 0].relu(), x[0, 0, 1]),
    "diagonal above": lambda m, x: x.relu().diagonal(2, -1, 1),
    "detached": lambda m, x: (x.mean(1, keepdim=True).detach() - x).relu(),
    "rounded for training": lambda m, x: x + (x.round() - x).detach(),
    "above a diagonal": lambda m, x: x.relu().triu(1) + x.triu(-9),
    "above a diagonal of no square": lambda m, x: x.relu()[0, :, 0].triu(2) + 1,
    "rolled": lambda m, x: x.relu().roll((0, 2, -3), (1, 2, 3)),
    "rolled as one row": lambda m, x: x.relu().roll(2),
}
#: Stock annotates them, and cannot lower them.
CUTS = {
    "cut and padded": lambda m, x: F.pad(x.relu(), (0, 0, 1, -1)),
    "cut": lambda m, x: F.pad(x.relu(), (-1, -2)),
    "cut and padded with a number": lambda m, x: F.pad(x.relu(), (-2, 3), value=0.5),
}


#: Stock annotates them, and its annotators are all that look through a list.
PARTS = {
    "in chunks": lambda m, x: torch.cat(x.relu().chunk(3, 1)[::-1], 1),
    "in parts of a size": lambda m, x: torch.cat(x.relu().split(3, -1)[::-1], -1),
    "in parts of sizes": lambda m, x: torch.cat(x.relu().split([1, 3], 1)[::-1], 1),
    "in rows": lambda m, x: x.relu().unbind(2)[-1] + x.unbind(-2)[0],
}


if VERSION < (1, 5):
    # A pass of stock's asserts that its rank is another.
    del VIEWS["windows of an image"]


class TestViews(Spelling):
    inputs = INPUTS
    written = VIEWS
    kept: ClassVar = {
        "many windows": lambda m, x: x.flatten().unfold(0, 2, 1),
        "integers": lambda m, x: x.to(torch.int32).diagonal(0, 1, 2),
    }


def softmax_of_an_image(m, x):
    return x.flatten(2).softmax(-1).view_as(x)


def test_a_value_in_the_view_of_another_keeps_its_domain():
    """Stock gives it that of the other: the probabilities of an image have that of its scores."""
    samples = [(torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(seed)),) for seed in range(8)]
    stock, ours = both_ratios(softmax_of_an_image, samples)
    assert stock < 12
    assert ours > 30
    check_whole(softmax_of_an_image, samples[0], PROFILES[0])


def test_a_dynamic_size_is_read_where_the_graph_runs():
    net = Lambda(VIEWS["as wide as another"])
    model = exported(net, INPUTS, ({3: torch.export.Dim("width", min=2, max=64)},))
    spell_out_operators(model)
    for width in (5, 8):
        sample = torch.randn(1, 4, 8, width)
        torch.testing.assert_close(model(sample), net(sample))


class TestCuts(Whole):
    inputs = INPUTS
    written = CUTS
    kept: ClassVar = {
        "padded": lambda m, x: F.pad(x, (1, 2)),
        "cut and reflected": lambda m, x: F.pad(x[0], (-1, 2), mode="reflect"),
    }


class TestParts(Whole):
    inputs = INPUTS
    written = PARTS
    kept: ClassVar = {
        "chunks of integers": lambda m, x: x.to(torch.int32).chunk(2, 1)[0],
        "rows of doubles": lambda m, x: x.double().unbind(1)[1],
    }
