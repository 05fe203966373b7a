"""The record names each correction that made a difference, and the operators it made it to."""

from types import SimpleNamespace

import torch
from folding import edge_of
from lowering import PROFILES, lower_safely, quantize, tosa
from small import Built, Lambda, image

from safe_arm.core.lowering_record import Lowering, lowering
from safe_arm.passes.applied import CORRECTION, CorrectivePass, applied

TORN = Lambda(lambda m, x: torch.cat([torch.nn.functional.relu(m.conv(x)), x], 1)).eval()


def record_of(net, profile, **options):
    graph_module = quantize(net, image(), tosa(profile))
    return lower_safely(graph_module, image(), tosa(profile), non_fuseable="propagate", **options)[1].report


def test_a_clamp_that_was_kept_is_named(profile):
    report = record_of(TORN, profile)
    by_name = {each.correction: each for each in report.applied}
    assert by_name["honest-fusion"].nodes == ("aten_relu_default",)
    assert by_name["qparam-propagator"].nodes == ("aten_convolution_default", "aten_relu_default")
    assert {each.issue for each in report.applied} == {"S1"}
    assert {each.delegate for each in report.applied} <= set(report.delegates)


def test_a_net_that_stock_gets_right_has_nothing_corrected(profile):
    assert record_of(Lambda(lambda m, x: torch.nn.functional.relu(m.conv(x))).eval(), profile).applied == ()


def test_without_trial_lowering_nothing_is_known_yet():
    assert record_of(TORN, PROFILES[0], preflight=False).applied == ()


def test_a_pass_on_its_own_notes_nothing():
    graph = torch.fx.Graph()
    with lowering(Lowering()) as left:
        applied(object(), graph.placeholder("x"))
    assert left.notes == []


class OfRelus(CorrectivePass):
    """Corrects what is a relu, and nothing of it."""

    def correct(self, node):
        return "relu" in str(node.target)


def test_a_pass_notes_each_node_that_it_corrects():
    graph_module = edge_of(torch.relu, torch.tanh, inputs=image()).graph_module
    correcting = OfRelus()
    setattr(correcting, CORRECTION, SimpleNamespace(name="of-relus", issue="S1"))
    with lowering(Lowering()) as left:
        assert correcting(graph_module).modified
    assert left.notes == [("of-relus", "S1", "aten_relu_default")]


#: The same island twice, with one weight, and what no accelerator takes between.
TWICE = Built(lambda m, x: (m.net(x), m.net(torch.fmod(x, 3.0))), net=TORN).eval()


def test_delegates_that_are_each_other_s_double_have_names_of_their_own():
    report = record_of(TWICE, PROFILES[0])
    kept = [each for each in report.applied if each.correction == "honest-fusion"]
    assert sorted(node for each in kept for node in each.nodes) == ["aten_relu_default", "aten_relu_default_1"]
    of = {v.name: v.delegate for v in report.verdicts}
    assert all(of[node] == each.delegate for each in kept for node in each.nodes)
