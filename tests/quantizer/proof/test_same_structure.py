"""A converted graph without its quantisers is the graph that was calibrated."""

import copy

import pytest
import torch
from float_faults import ATEN, IN_CONVERSION
from graph_changes import graph_of
from small import DQ, Built, Lambda, Q, image
from stubborn import calibrated, exported, quantizer_of
from torch.fx import GraphModule

from safe_arm.core.errors import FloatProofWarning
from safe_arm.quantizer.graphs.mask_bounds import bound_of
from safe_arm.quantizer.proof.same_structure import Structure


def rounded(model):
    """The graph with Q and DQ behind each operator."""
    made = GraphModule(model, copy.deepcopy(model.graph))
    for node in [each for each in made.graph.nodes if each.op in ("call_function", "get_attr")]:
        users = list(node.users)
        with made.graph.inserting_after(node):
            quantised = made.graph.call_function(Q, (node, 0.05, 3, -128, 127, torch.int8))
        with made.graph.inserting_after(quantised):
            dequantised = made.graph.call_function(DQ, (quantised, 0.05, 3, -128, 127, torch.int8))
        for user in users:
            user.replace_input_with(node, dequantised)
    made.recompile()
    return made


RULES = {
    "conv": lambda m, x: torch.relu(m.conv(x)),
    "join": lambda m, x: torch.cat((m.conv(x), x), 1),
    "two outputs": lambda m, x: (torch.sigmoid(x), {"a": torch.tanh(x), "none": None}),
}


def quantised_before(m, x, step=0.05):
    return torch.relu(DQ(Q(x * 2, 0.05, 3, -128, 127, torch.int8), step, 3, -128, 127, torch.int8)) * 3


def test_a_graph_with_quantisers_of_its_own_is_the_same_and_one_with_others_is_not(recwarn):
    model = graph_of(quantised_before)
    assert Structure(model).difference(rounded(model)) == ""
    other = graph_of(lambda m, x: quantised_before(m, x, step=0.06))
    assert Structure(model).difference(other)
    calibrated(exported(Lambda(quantised_before), image()), quantizer_of(), [image()])
    assert not [each for each in recwarn if each.category is FloatProofWarning]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_what_is_only_rounded_is_the_same(rule):
    model = graph_of(rule)
    assert Structure(model).difference(model) == ""
    assert Structure(model).difference(rounded(model)) == ""


@pytest.mark.parametrize(
    "fault", [each for each in IN_CONVERSION if each.id != "state-not-written"], ids=lambda f: f.id
)
def test_what_is_changed_is_named(fault):
    model = exported(fault.net, image())
    other = rounded(model)
    fault.change(other)
    other.graph.eliminate_dead_code()
    assert Structure(model).difference(other)


def test_a_constant_that_is_folded_is_held_against_its_value():
    model = graph_of(lambda m, x: x * torch.tensor([0.5, 1.0, 1.5, 2.0]).neg().view(1, 4, 1, 1))
    structure = Structure(model)

    def folded(factor):
        other = GraphModule(model, copy.deepcopy(model.graph))
        view = next(node for node in other.graph.nodes if node.target == ATEN.view.default)
        other.register_buffer("folded", torch.tensor([-0.5, -1.0, -1.5, -2.0]).view(1, 4, 1, 1) * factor)
        with other.graph.inserting_before(view):
            constant = other.graph.get_attr("folded")
        view.replace_all_uses_with(constant)
        other.graph.eliminate_dead_code()
        return other

    assert structure.difference(folded(1.0)) == ""
    assert "reads another constant" in structure.difference(folded(1.1))


def test_what_leads_nowhere_may_go():
    """An LSTM joins its last states, which nobody reads."""
    model = graph_of(lambda m, x: m.conv(x))
    (output,) = model.graph.output_node().all_input_nodes
    with model.graph.inserting_after(output):
        first = model.graph.call_function(ATEN.neg.default, (output,))
    with model.graph.inserting_after(first):
        model.graph.call_function(ATEN.neg.default, (first,))
    structure, other = Structure(model), copy.deepcopy(model)
    other.graph.eliminate_dead_code()
    assert structure.difference(other) == ""


def test_the_values_of_a_state_are_not_constant():
    net = Built(lambda m, x: (x + m.state, m.state.copy_(x[0]))[0], state=torch.zeros(4, 8, 8))
    model = exported(net, image())
    structure, other = Structure(model, ["state"]), copy.deepcopy(model)
    other.state.fill_(3)
    assert structure.difference(other) == ""
    other.graph.erase_node(*other.graph.find_nodes(op="call_function", target=ATEN.copy_.default))
    assert structure.difference(other) == "copy_ is lost"


@pytest.mark.parametrize(
    ("wrong", "says"), [(None, ""), (6, "reads another constant than bound"), (2, "another constant")]
)
def test_a_bound_beyond_all_values_is_the_ends_of_a_domain(wrong, says):
    bounded = Built(lambda m, x: torch.minimum(x, m.bound), bound=bound_of(torch.arange(8) < 5, torch.float32))
    model = exported(bounded, image())
    other = rounded(model)
    if wrong is not None:
        other.bound = model.bound.clone()
        other.bound[wrong] = 0.5
    assert says in Structure(model).difference(other)
    assert bool(Structure(model).difference(other)) == bool(says)


def test_a_number_that_fills_is_not_any_other():
    """That it may be the end of a domain is tested with ``filled_domains``."""
    filled = Built(lambda m, x: torch.minimum(x, m.number), number=torch.full((1, 4, 1, 1), -1e9))
    model = exported(filled, image())
    other = rounded(model)
    assert Structure(model).difference(other) == ""
    other.number = torch.full((1, 4, 1, 1), 0.5)
    assert "another constant" in Structure(model).difference(other)
