"""A recurrent cell rounds to 8 bits what its layers and gates read, and nothing in between."""

import pytest
import torch
from graph_changes import annotated, annotates_no_more, wide
from lowering import PROFILES, WIDE, tosa
from ratios import for_ethos_u, histogram_ratios, ours_exactly, quantised
from small import Built, together
from spelled import check_one_exact
from stubborn import calibrated, exported, quantizer_of
from torch import nn

from safe_arm.quantizer.precision.fine_gates import SpaciousObserver, refine_gates

SAMPLES = [(torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(seed)),) for seed in range(12)]


def recurrent(layer_class, **how):
    torch.manual_seed(0)
    return layer_class(8, 16, batch_first=True, **how).requires_grad_(False)


class Steps(nn.Module):
    """A cell in a loop of the user's."""

    def __init__(self, cell_class) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = cell_class(8, 16).requires_grad_(False)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], 16)
        memory = state
        states = []
        for place in range(x.shape[1]):
            if isinstance(self.cell, nn.LSTMCell):
                state, memory = self.cell(x[:, place], (state, memory))
            else:
                state = self.cell(x[:, place], state)
            states.append(state)
        return torch.stack(states, 1)


#: By name, a net, and how many dB ours gains on stock: at least twice what it gains with 8 bits in the cell.
NETS = {
    "LSTM": (recurrent(nn.LSTM), 1.4),
    "LSTM, both ways": (recurrent(nn.LSTM, bidirectional=True), 1.4),
    "GRU": (recurrent(nn.GRU), 2.5),
    "GRU of two layers": (recurrent(nn.GRU, num_layers=2), 4.1),
    "RNN": (recurrent(nn.RNN), 1.0),
}
CELLS = {"LSTM cell": Steps(nn.LSTMCell), "GRU cell": Steps(nn.GRUCell)}


#: Two steps: the first reads zeros, and the second what the first made.
SHORT = [(x[:, :2],) for (x,) in SAMPLES[:2]]


def sequence_of(net):
    """A rule that gives the states of all steps."""
    return lambda m, x: net(x)[0]


@pytest.mark.parametrize("name", NETS)
def test_ours_keeps_more_of_it_than_stock(name):
    net, gain = NETS[name]
    stock, ours = histogram_ratios(sequence_of(net), SAMPLES)
    assert ours > stock + gain


def two_steps_of(parts):
    """A rule of two steps of a cell whose gates are taken apart in a way."""
    torch.manual_seed(0)
    of_input, of_state = nn.Linear(8, 48).requires_grad_(False), nn.Linear(16, 48).requires_grad_(False)

    def rule(m, x):
        state = x[:, 0].repeat(1, 2).tanh()
        for place in range(2):
            reset, update, new = parts(of_input(x[:, place]))
            old_reset, old_update, old_new = parts(of_state(state))
            gate = (update + old_update).sigmoid()
            made = (new + (reset + old_reset).sigmoid() * old_new).tanh()
            state = made + gate * (state - made)
        return state

    return rule


def test_the_gates_of_a_chunk_have_what_those_of_slices_have():
    stock, ours = histogram_ratios(two_steps_of(lambda gates: gates.chunk(3, 1)), SAMPLES)
    _, sliced = histogram_ratios(two_steps_of(lambda gates: (gates[:, :16], gates[:, 16:32], gates[:, 32:])), SAMPLES)
    assert ours == sliced
    assert ours > stock + 2.5


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_the_one_delegate_is_exact(name):
    ours_exactly(sequence_of(NETS[name][0]), SHORT)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_what_a_cell_adds_has_one_domain_so_that_the_sum_is_not_rounded(name):
    graph = quantised(sequence_of(NETS[name][0]), quantizer_of(), SHORT).graph
    sums = 0
    for target in (torch.ops.aten.add.Tensor, torch.ops.aten.sub.Tensor):
        for node in graph.find_nodes(op="call_function", target=target):
            (rounded,) = node.users
            if rounded.args[-1] == torch.int16:
                sums += 1
                assert {each.args[1:] for each in node.all_input_nodes} == {rounded.args[1:]}
    assert sums


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_in_a_loop_is_one_exact_delegate_too(name):
    assert wide(annotated(CELLS[name], quantizer_of(), SAMPLES[0]), dtype=torch.int16)
    graph = calibrated(exported(CELLS[name], SHORT[0]), quantizer_of(), SHORT)
    check_one_exact(graph, SHORT[0], tosa(PROFILES[0]))


class Messages(nn.Module):
    """A graph net: each state is read twice by places, for a message, and by the cell."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.message = nn.Linear(16, 8).requires_grad_(False)
        self.cell = nn.GRUCell(8, 8).requires_grad_(False)
        self.register_buffer("source", torch.tensor([0, 1, 2, 3]))
        self.register_buffer("target", torch.tensor([1, 2, 3, 0]))

    def forward(self, x):
        for _ in range(2):
            pairs = torch.cat([x[self.source], x[self.target]], -1)
            x = self.cell(self.message(pairs), x)
        return x


def test_a_state_that_others_read_together_has_8_bits_for_each():
    """If one of them referred to another, torchao's prepare would recurse endlessly (T20)."""
    inputs = (SAMPLES[0][0][:, 0],)
    quantizer = quantizer_of()
    graph = calibrated(exported(Messages(), inputs), quantizer, [inputs])
    assert quantizer.left_float == ()
    places = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.index.Tensor)
    assert len(places) == 4
    assert {node.args[0].args[-1] for node in places} == {torch.int8}
    check_one_exact(graph, inputs, tosa(PROFILES[0]))


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_states_that_are_passed_in_and_returned_have_8_bits_at_the_border(name):
    def rule(m, x, state, memory):
        y, states = NETS[name][0](x, (state, memory) if name == "LSTM" else state)
        return y, states

    generator = torch.Generator().manual_seed(0)
    inputs = (SHORT[0][0], *torch.randn(2, 1, 4, 16, generator=generator).clamp(-1, 1).unbind())
    graph = calibrated(exported(Built(rule), inputs), quantizer_of(), [inputs])
    assert torch.int16 in [node.args[-1] for node in graph.graph.nodes if node.args]
    for output in graph.graph.output_node().args[0]:
        assert output.args[-1] == torch.int8
    check_one_exact(graph, inputs, tosa(PROFILES[0]))


LAYERS = {"layer": nn.Linear(8, 8), "other": nn.Linear(8, 8)}
KEPT = {
    "one layer": lambda m, x: torch.sigmoid(m.layer(x) + x),
    "a sum without gates": lambda m, x: torch.relu(m.layer(x) + m.other(x)),
    "a layer twice": lambda m, x: (lambda y: torch.tanh(y + y))(m.layer(x)),
    "a layer that is read besides": lambda m, x: (lambda y: (torch.tanh(y + m.other(x)), y.softmax(-1)))(m.layer(x)),
}


def test_near_misses_keep_8_bits():
    assert wide(annotated(Built(together(KEPT), **LAYERS), quantizer_of(), SAMPLES[0]), dtype=torch.int16) == []


def test_what_a_value_of_the_cell_is_broadcast_to_keeps_8_bits():
    def rule(m, x):
        gate = torch.sigmoid(m.layer(x[:, 0]) + m.other(x[:, 1]))
        return (gate * x[:, 2])[:, None] * x

    names = wide(annotated(Built(rule, **LAYERS), quantizer_of(), SAMPLES[0]), dtype=torch.int16)
    assert "mul" in names
    assert "mul_1" not in names


def test_an_ethos_u_takes_too_long_for_it(ethos_u):
    assert wide(annotated(NETS["LSTM"][0], for_ethos_u(ethos_u), SAMPLES[0]), dtype=torch.int16) == []


def test_training_and_16_bits_everywhere_are_as_they_were_and_twice_equals_once():
    quantizers = [quantizer_of(is_qat=True), quantizer_of()]
    for quantizer in (*quantizers, quantizer_of(profile="TOSA-1.0+INT+int16", config=WIDE)):
        assert annotates_no_more(refine_gates, annotated(NETS["LSTM"][0], quantizer, SAMPLES[0]))


def test_the_domain_has_room_for_twice_what_was_seen():
    observer = SpaciousObserver(
        dtype=torch.int16, quant_min=-(2**15), quant_max=2**15 - 1, qscheme=torch.per_tensor_symmetric
    )
    observer(torch.tensor([-1.0, 3.0]))
    scale, zero_point = observer.calculate_qparams()
    assert int(zero_point) == 0
    # torch divides by half of all steps.
    assert float(scale) == pytest.approx(6 / (2**16 - 1) * 2)
