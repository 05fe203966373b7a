"""A state is read and written at each call, whatever the passes before annotation fold and cast (T27, T29)."""

from functools import partial

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes
from lowering import PROFILES, lower, tosa
from small import Built
from stateful import assigned, stateful
from stubborn import calibrated, exported, quantizer_of

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer, verify
from safe_arm._compat.release_1_4 import STATES_ARE_CONSTANTS
from safe_arm.quantizer.annotation.states_apart import with_states_apart
from safe_arm.quantizer.graphs.functional_writes import write_functionally

STEPS = [(torch.tensor([[value, 0.5, -value, 1.0]]),) for value in (1.0, -0.5, 0.75, 0.25, -1.0, 0.5)]


def filtered(m, x):
    """Two states, one inside a layer, of two dtypes, and a constant."""
    m.calls = m.calls + 1
    m.layer.state.mul_(0.75).add_(x)
    return m.layer.state + m.shift * 2, m.calls


def stateless(m, x):
    return m.layer.state * 0.75 + x + m.shift, m.calls


def filter_of(rule=filtered):
    layer = torch.nn.Module()
    layer.register_buffer("state", torch.zeros(1, 4))
    return Built(rule, shift=torch.full((1, 4), 0.25), calls=torch.zeros(1, dtype=torch.int64), layer=layer)


def counted(m, x):
    m.calls = m.calls + 1
    return x * 0.5, m.calls


def first_is_taken(m, x):
    y = torch.where(m.calls == 0, x, (m.state + x) * 0.5)
    m.calls = m.calls + 1
    m.state = y
    return y


def ring(m, x):
    m.rows.index_copy_(0, (m.calls % 4).view(1), x)
    m.calls.add_(1)
    return m.rows.mean(0, keepdim=True) + x


def one_hot_ring(m, x):
    m.rows = torch.where((torch.arange(4) == m.calls % 4).view(4, 1), x, m.rows)
    m.calls = m.calls + 1
    return m.rows.sum(0, keepdim=True)


def flagged(m, x):
    y = torch.where(m.flag, x, -x)
    m.flag.logical_not_()
    return y * 2


def swapped(m, x):
    """Each state takes what the other was."""
    before = m.state.clone()
    m.state.copy_(m.rows[:1] + x * 0.25)
    m.rows.copy_(before.expand(4, 4))
    return m.state * 2 + m.rows[:1]


def shifted(m, x):
    m.state[:, :3] = m.state[:, 1:].clone()
    m.state[:, 3:] = x[:, :1] * 0.5
    return m.state * 2


def scaled(m, x):
    m.state.mul_(0.5).add_(x * 0.5)
    return m.state * 2


def cleared(m, x):
    m.state.zero_()
    m.state[:, 1] += x[:, 0] * 0.75
    return x * 0.5 + m.state


def exchanged(m, x):
    """A state takes what another was, without a name for it in between."""
    m.first_row.copy_(m.state)
    m.state.copy_(x * 0.5)
    return m.first_row + x


def scalar(m, x):
    """A state without dims."""
    m.level.mul_(0.5).add_(x.mean() * 0.5)
    return x - m.level


#: Stock forgets these.
FORGOTTEN = [counted, first_is_taken, ring, one_hot_ring, flagged, shifted, scaled, cleared]


def quantised(rule, quantizer_class, profile=PROFILES[0]):
    """A quantised graph whose state is what a new net's is."""
    return begun(calibrated(exported(stateful(rule), STEPS[0]), quantizer_of(quantizer_class, profile), STEPS))


def begun(graph_module):
    new = dict(stateful(None).named_buffers())
    for name, buffer in graph_module.named_buffers():
        if name in new:
            buffer.copy_(new[name])
    return graph_module


def worst(net, graph_module):
    """How far the steps of a graph are from the net's."""
    pairs = zip(carried(net), carried(graph_module), strict=True)
    return max((a - b).abs().max() for wanted, got in pairs for a, b in zip(wanted, got, strict=True))


def written_out(net):
    """The graph of a net, which writes into no view or state within it."""
    model = exported(net, STEPS[0])
    write_functionally(model)
    return model


def transformed(quantizer_class, net):
    return quantizer_of(quantizer_class).transform_for_annotation(exported(net, STEPS[0]))


def carried(graph_module):
    """What each step gives, one after another."""
    found = []
    for step in STEPS:
        values = graph_module(*step)
        found.append([value.clone() for value in (values if isinstance(values, tuple) else (values,))])
    return found


@pytest.mark.skipif(not STATES_ARE_CONSTANTS, reason="from 1.5 on stock folds with a folder that knows states (T27)")
def test_stock_folds_what_is_computed_of_a_state():
    (first, _), (second, _), *_ = carried(transformed(TOSAQuantizer, filter_of()))
    assert torch.equal(first - second, STEPS[0][0] - STEPS[1][0])  # nothing of the first step


@pytest.mark.parametrize("rule", FORGOTTEN)
def test_stock_forgets_a_state(rule):
    assert worst(stateful(rule), quantised(rule, TOSAQuantizer)) > 0.5


@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
@pytest.mark.parametrize("rule", [*FORGOTTEN, assigned, swapped, exchanged, scalar])
def test_ours_carries_it_on(rule, profile):
    """To the codes of the quantised graph, and that within six roundings of at most 0.008 of the net."""
    graph_module = quantised(rule, SafeTOSAQuantizer, profile)
    manager = lower(graph_module, STEPS[0], SafeArmPartitioner(tosa(profile)))
    assert {gap.worst for gap in verify(manager, STEPS, reference=graph_module).outputs} == {0}
    assert worst(stateful(rule), begun(graph_module)) < 0.05


def test_ours_computes_it_at_each_call():
    assert worst(filter_of(), transformed(SafeTOSAQuantizer, filter_of())) == 0


def test_the_passes_see_states_as_inputs_and_the_rest_as_it_is():
    seen = []

    def spy(graph_module):
        seen.extend((node.op, str(node.target)) for node in graph_module.graph.nodes if node.op != "call_function")
        return graph_module

    model = written_out(filter_of())
    after = with_states_apart(model, spy)
    kept = [("get_attr", "shift"), ("output", "output"), ("placeholder", "x")]
    assert sorted(seen) == sorted([*kept, *[("placeholder", f"safe_arm_state_{index}") for index in range(2)]])
    assert worst(filter_of(), after) == 0
    assert sorted(name for name, _ in after.named_buffers()) == ["calls", "layer.state", "shift"]


@pytest.mark.parametrize(
    "net",
    [filter_of(stateless), stateful(lambda m, x: m.state.copy_(x) * 2)],
    ids=["no write", "a write whose result is read"],
)
def test_a_graph_without_a_write_that_nobody_reads_is_handed_on(net):
    """A write whose result is read is made a value before, where that can be done."""
    model = exported(net, STEPS[0])
    seen = []
    assert not changes(partial(with_states_apart, transform=seen.append), model)
    assert seen == [model]


def test_a_state_keeps_its_rank():
    """Stock's passes make vectors of scalars, for one of softplus (T21)."""

    def with_a_vector(graph_module):
        output = graph_module.graph.output_node()
        (rest, written), ones = output.args[0], torch.ops.aten.unsqueeze.default
        with graph_module.graph.inserting_before(output):
            vector = graph_module.graph.call_function(ones, (written, 0))
        vector.meta["val"] = written.meta["val"].unsqueeze(0)
        output.args = ((rest, vector),)
        return graph_module

    after = with_states_apart(written_out(stateful(scalar)), with_a_vector)
    assert worst(stateful(scalar), after) == 0


def test_two_states_may_change_places():
    """Whichever is written first, both take what the other was when the call began."""

    def forward(m, x):
        before = m.one.clone()
        m.one.copy_(m.other)
        m.other.copy_(before)
        return x.sum() + m.one

    def without_clones(graph_module):
        for node in graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default):
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)
        return graph_module

    def both():
        return Built(forward, one=torch.tensor([1.0]), other=torch.tensor([2.0]))

    assert worst(both(), with_states_apart(written_out(both()), without_clones)) == 0


def test_twice_equals_once():
    once = with_states_apart(written_out(filter_of()), lambda given: given)
    nodes = sorted(str(node.target) for node in once.graph.nodes)
    again = with_states_apart(once, lambda given: given)
    assert sorted(str(node.target) for node in again.graph.nodes) == nodes
    assert worst(filter_of(), again) == 0
