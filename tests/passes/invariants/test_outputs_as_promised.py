"""A delegate gives its caller the shapes and dtypes the caller's graph was traced with."""

import pytest
import torch
from breaking import broken_in, check_broken, outputs_changed
from lowering import PROFILES, RELEASE, edge_program, lower, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner
from safe_arm.core.errors import DemotionWarning, InvariantError
from safe_arm.passes.invariants.domains_meet import outputs_of
from safe_arm.passes.invariants.outputs_as_promised import OutputsAsPromised
from safe_arm.passes.propagate_view_copy_permute_up import PropagateViewCopyPermuteUpPass
from safe_arm.verification.reference_model import run_lowered


def two_outputs():
    return quantize(Lambda(lambda m, x: (m.conv(x), x.sum(3))), image(), tosa(PROFILES[0]))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda outputs: outputs[::-1], ("[1, 4, 8, 8]", "was promised")),
        (lambda outputs: outputs[:1], ("gives 1 values, 2 were promised",)),
    ],
    ids=["change places", "is gone"],
)
def test_red_for_outputs_of_different_shapes(change, says):
    with outputs_changed(change):
        error = broken_in(two_outputs(), image())
    check_broken(error, "outputs-as-promised", "ExirToTosaPass", *says)


def test_red_for_another_dtype():
    program = edge_program(two_outputs(), image())
    graph_module = program.graph_module
    invariant = OutputsAsPromised()
    invariant.begin(program, graph_module)
    invariant.finish(graph_module)
    value = outputs_of(graph_module)[1]
    value.meta["val"] = value.meta["val"].to(torch.int16)
    invariant.after("FaultyPass", graph_module, None)
    with pytest.raises(InvariantError, match=r"is torch.int16, and torch.float32 was promised") as caught:
        invariant.finish(graph_module)
    assert caught.value.broken_by == "FaultyPass"


@pytest.mark.skipif(RELEASE != (1, 5), reason="measured on 1.5.1")
def test_stock_s_lost_layout_of_a_comparison_is_caught(monkeypatch):
    """Stock moves the permute behind a conv over ``lt.Scalar``, which ends the graph, and loses it."""
    net, profile = Lambda(lambda m, x: m.conv(x) < 0.5), "TOSA-1.0+FP"
    monkeypatch.delattr(PropagateViewCopyPermuteUpPass, "_move_node")
    graph_module = torch.export.export(net, image()).module()
    error = broken_in(graph_module, image(), profile)
    check_broken(error, "outputs-as-promised", "PropagateViewCopyPermuteUpPass")
    with pytest.warns(DemotionWarning, match="aten::lt"):
        ours = lower(graph_module, image(), SafeArmPartitioner(tosa(profile)))
    assert torch.equal(run_lowered(ours.exported_program(), image())[0], net(*image()))


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: x.reshape(1, -1),
        lambda m, x: x > 0.5,
        lambda m, x: torch.argmax(x, 1),
        lambda m, x: (x, m.conv(x)),
        lambda m, x: m.conv(x).permute(0, 2, 3, 1),
        lambda m, x: m.conv(x).to(memory_format=torch.channels_last),
        lambda m, x: x.sum(),
    ],
    ids=["view", "bool", "index", "two", "permuted", "channels-last", "rank-0"],
)
def test_quiet_on_outputs_of_other_kinds(function, profile):
    assert broken_in(quantize(Lambda(function), image(), tosa(profile)), image(), profile) is None
