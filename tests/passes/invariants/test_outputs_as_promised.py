"""A delegate gives its caller the shapes and dtypes the caller's graph was traced with."""

import pytest
import torch
from breaking import broken_in
from lowering import PROFILES, quantize, tosa
from planting import Site, planted
from small import Lambda, image


def two_outputs():
    return quantize(Lambda(lambda m, x: (m.conv(x), x.sum(3))), image(), tosa(PROFILES[0]))


def test_red_for_outputs_of_different_shapes_that_change_places():
    def swap(site: Site) -> bool:
        output = site.graph.output_node()
        output.args = (list(output.args[0])[::-1],)
        return True

    with planted("ExirToTosaPass", swap):
        error = broken_in(two_outputs(), image())
    assert (error.invariant, error.broken_by) == ("outputs-as-promised", "ExirToTosaPass")
    assert "[1, 4, 8, 8]" in str(error)
    assert "was promised" in str(error)


def test_red_for_an_output_that_is_gone():
    def drop(site: Site) -> bool:
        output = site.graph.output_node()
        output.args = (list(output.args[0])[:1],)
        return True

    with planted("ExirToTosaPass", drop):
        error = broken_in(two_outputs(), image())
    assert "gives 1 values, 2 were promised" in str(error)


def test_red_for_another_dtype():
    def widen(site: Site) -> bool:
        (value,) = site.graph.output_node().args[0]
        value.meta["val"] = value.meta["val"].to(torch.int16)
        return True

    net = quantize(Lambda(lambda m, x: m.conv(x)), image(), tosa(PROFILES[0]))
    with planted("EnsureUniqueOutputNodesPass", widen):
        error = broken_in(net, image())
    assert (error.invariant, error.broken_by) == ("outputs-as-promised", "EnsureUniqueOutputNodesPass")
    assert "torch.int8 was promised" in str(error)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: x.reshape(1, -1),
        lambda m, x: x > 0.5,
        lambda m, x: torch.argmax(x, 1),
        lambda m, x: (x, m.conv(x)),
        lambda m, x: m.conv(x).permute(0, 2, 3, 1),
    ],
    ids=["view", "bool", "index", "two", "channels-last"],
)
def test_quiet_on_outputs_of_other_kinds(function, profile):
    assert broken_in(quantize(Lambda(function), image(), tosa(profile)), image(), profile) is None
