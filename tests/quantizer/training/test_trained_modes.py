"""A net that is trained is switched to evaluation and back without a change of its numbers."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, lower_safely, tosa
from small import Built
from stubborn import exported, trainable
from torch import nn
from torchao.quantization.pt2e import move_exported_model_to_eval, move_exported_model_to_train
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.errors import DoubtfulInputWarning
from safe_arm.quantizer.training.trained_modes import switch_training

ROWS = (torch.randn(16, 8, generator=torch.Generator().manual_seed(0)),)
TOKENS = (torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0)),)


def dropping():
    torch.manual_seed(0)
    parts = {"a": nn.Linear(8, 8), "d": nn.Dropout(0.2), "b": nn.Linear(8, 4)}
    return Built(lambda m, x: m.b(m.d(m.a(x).relu())), **parts).train()


def attending():
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True)
    return Built(lambda m, x: m.t(x, x, x, need_weights=False)[0], t=attention).train()


#: By name, a net that drops values, and its input.
DROPPING = {"of rows": (dropping, ROWS), "of attention": (attending, TOKENS)}


def prepared(name, quantizer_class=SafeTOSAQuantizer):
    make, inputs = DROPPING[name]
    return trainable(make(), inputs, quantizer_class)


def shares_dropped(model):
    found = model.graph.find_nodes(op="call_function", target=torch.ops.aten.dropout.default)
    return [node.args[1:] for node in found]


def test_stock_drops_half_once_it_was_evaluated_and_ours_drops_what_it_did():
    for quantizer_class, share in ((TOSAQuantizer, 0.5), (SafeTOSAQuantizer, 0.2)):
        model = prepared("of rows", quantizer_class)
        move_exported_model_to_eval(model)
        move_exported_model_to_train(model)
        assert shares_dropped(model) == [(share, True)]


def test_stock_s_attention_drops_when_training_is_over_and_ours_does_not():
    for quantizer_class, is_random in ((TOSAQuantizer, True), (SafeTOSAQuantizer, False)):
        model = prepared("of attention", quantizer_class)
        first, second = model(*TOKENS), model(*TOKENS)
        assert not torch.equal(first, second)
        move_exported_model_to_eval(model)
        graph_module = convert_pt2e(model)
        assert torch.equal(graph_module(*TOKENS), graph_module(*TOKENS)) != is_random


@pytest.mark.parametrize("name", DROPPING)
def test_what_is_converted_while_it_trains_drops_nothing_and_is_one_exact_delegate(name):
    model = prepared(name)
    _, inputs = DROPPING[name]
    model(*inputs)
    _, partitioner = lower_safely(convert_pt2e(model), inputs, tosa(PROFILES[0]), verify=True)
    assert partitioner.report.fallbacks == ()
    # Not a code, apart from the ties of a softmax's reciprocal.
    assert [each.worst for each in partitioner.report.verifications] == [0.0]


def test_calibration_and_nets_of_stock_s_are_switched_as_before():
    stock = prepared("of rows", TOSAQuantizer)
    before = str(stock.graph)
    graph_module = convert_pt2e(stock)
    assert shares_dropped(graph_module) == [(0.2, True)]
    assert before != str(graph_module.graph)


def norms(trains, drops=True):
    model = Built(lambda m, x: m.d(m.n(x)) + m.m(x), n=nn.BatchNorm1d(8), m=nn.BatchNorm1d(8), d=nn.Dropout(0.3))
    model.train(drops)
    model.n.train(trains[0])
    model.m.train(trains[1])
    return exported(model, ROWS)


def flags(model):
    found = model.graph.find_nodes(op="call_function", target=torch.ops.aten.batch_norm.default)
    return [node.args[5] for node in found]


#: Whether each of two norms is trained at first, and when training goes on after an evaluation.
SWITCHED = {
    "trained": ((True, True), [True, True]),
    "one frozen": ((True, False), [True, False]),
    "all frozen, and a dropout that is trained": ((False, False), [False, False]),
}


@pytest.mark.parametrize("name", SWITCHED)
def test_norms_are_trained_again_that_were_and_twice_equals_once(name):
    trains, again = SWITCHED[name]
    model = norms(trains)
    for mode, expected in ((False, [False, False]), (True, again)):
        switch_training(model, mode)
        assert flags(model) == expected
        once = str(model.graph)
        switch_training(model, mode)
        assert str(model.graph) == once
    assert shares_dropped(model) == [(0.3, True)]


def test_a_net_that_was_exported_for_evaluation_is_trained_with_a_word():
    """The user says that all of it is to be trained, and may have frozen the norms all the same."""
    model = norms((False, False), drops=False)
    with pytest.warns(DoubtfulInputWarning, match="2 batch norm.* are trained from here on"):
        switch_training(model, True)
    assert flags(model) == [True, True]
    assert shares_dropped(model) == [(0.3, True)]


def test_a_norm_without_statistics_goes_by_the_batch_in_evaluation_too():
    model = exported(Built(lambda m, x: m.n(x), n=nn.BatchNorm1d(8, track_running_stats=False)).train(), ROWS)
    switch_training(model, False)
    assert flags(model) == [True]
    model(*ROWS)
