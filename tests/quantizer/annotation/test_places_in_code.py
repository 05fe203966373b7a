"""What a pass puts in for an operator has the user's line and module of that operator."""

import copy

import pytest
import torch
import torch.nn as nn
from stubborn import exported, transformed

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.island import op_name
from safe_arm.core.origins import ORIGIN_KEY
from safe_arm.core.source_line import source_line
from safe_arm.quantizer.annotation import contained_transform
from safe_arm.quantizer.annotation.left_float import Ledger
from safe_arm.quantizer.annotation.places_in_code import keep_places

TOKENS = torch.tensor([[1, 2, 3]])


class TwoTables(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(8, 4), nn.Embedding(8, 4), nn.Linear(4, 2)

    def forward(self, tokens, places):
        words = self.words(tokens)
        at = self.places(places)
        return self.head(words - at)


def lines(graph_module, operator):
    """Yield the user's line and the module of each operator of a name."""
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and operator in str(node.target):
            yield source_line(node).partition("  ")[2], list(node.meta["nn_module_stack"].values())[-1][0]


def test_what_tables_are_decomposed_into_has_the_line_and_the_module_of_its_own_table():
    graph_module = transformed(TwoTables(), SafeTOSAQuantizer, (TOKENS, TOKENS.clone()))
    words = "words = self.words(tokens)", "words"
    places = "at = self.places(places)", "places"
    assert list(lines(graph_module, "index_select")) == [words, places]
    assert sorted(lines(graph_module, "_to_dim_order_copy")) == [places, words]
    assert sorted(lines(graph_module, "reshape")) == [places, places, words, words]


def test_a_table_whose_rows_are_the_result():
    graph_module = transformed(TwoTables().words, SafeTOSAQuantizer, (TOKENS,))
    for node in graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.index_select.default):
        assert "in forward" in node.meta["stack_trace"]
        assert "decompose_embedding" not in node.meta["stack_trace"]


def test_an_operator_put_in_before_one_that_stays_has_the_line_of_that():
    model = exported(nn.ReLU(), (torch.randn(2),))

    def stock(graph_module):
        (relu,) = graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
        with graph_module.graph.inserting_before(relu):
            negative = graph_module.graph.call_function(torch.ops.aten.neg.default, (relu.args[0],))
        relu.args = (negative,)
        graph_module.recompile()
        return graph_module

    after = contained_transform.transform(model, stock, Ledger())
    (negative,) = after.graph.find_nodes(op="call_function", target=torch.ops.aten.neg.default)
    assert "F.relu(input" in negative.meta["stack_trace"]
    assert [key for node in after.graph.nodes for key in node.meta if key.startswith("safe_arm_origin")] == []


class Masked(nn.Module):
    def forward(self, scores, hide, values):
        kept = scores.masked_fill(hide, -1e9)
        shares = kept.softmax(-1)
        return shares @ values


def test_what_our_own_steps_write_has_a_line_of_the_users():
    inputs = torch.randn(1, 2, 4, 4), torch.eye(4) == 1, torch.randn(1, 2, 4, 3)
    graph_module = transformed(Masked(), SafeTOSAQuantizer, inputs)
    nodes = [node for node in graph_module.graph.nodes if node.op == "call_function"]
    assert {"where", "logical_not"} <= {op_name(node).partition("::")[2] for node in nodes}
    assert [op_name(node) for node in nodes if not source_line(node)] == []


@pytest.mark.parametrize("line", ["", "a line of its own"])
def test_an_operator_that_says_what_it_stands_for_gets_a_line_if_it_has_none_and_nothing_else(line):
    before = exported(nn.ReLU(), (torch.randn(2),))
    after = copy.deepcopy(before)
    (relu,) = after.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
    original = relu.meta["stack_trace"]
    relu.meta = {ORIGIN_KEY: relu.name, "stack_trace": line}
    keep_places(before, after)
    assert relu.meta == {ORIGIN_KEY: relu.name, "stack_trace": line or original}
