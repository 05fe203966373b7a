"""What stays float is said once, in words, and written on the node for later reports."""

import copy
import warnings

import pytest
import torch
from graph_changes import graph_of
from lowering import edge_program
from stubborn import TRANSFORM_INT, Stubborn, converted, quantizer_of, ramp

from safe_arm.quantizer.annotation.left_float import REASON_KEY, Ledger, LeftFloat, is_left_float


def node():
    graph = graph_of(lambda m, x: torch.relu(m.conv(x))).graph
    return graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)[0]


def test_an_entry_reads_as_a_sentence():
    entry = LeftFloat("addmm", "aten::addmm", "transform", "AttributeError: no", "net.py:3  y = addmm(b, x, w)")
    assert str(entry) == "addmm (aten::addmm), net.py:3  y = addmm(b, x, w): AttributeError: no"
    assert str(LeftFloat("", "", "annotate", "no", "")) == "the whole graph: no"


def test_each_is_noted_and_said_once():
    ledger, relu = Ledger(), node()
    for _ in range(2):
        ledger.add("annotate", "why not", relu)
    assert [(e.node, e.op, e.stage, e.reason) for e in ledger] == [("relu", "aten::relu", "annotate", "why not")]
    with pytest.warns(UserWarning, match=r"1 operator\(s\) stay float because quantising them failed.*relu.*why not"):
        ledger.warn()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ledger.warn()
        Ledger().warn()


def test_a_step_that_is_left_out_is_no_operator():
    ledger = Ledger()
    ledger.add("annotate", "keep_exact is left out: RecursionError")
    told = r"^quantising failed in part, for all operators alike: keep_exact is left out: RecursionError$"
    with pytest.warns(UserWarning, match=told):
        ledger.warn()
    ledger.add("annotate", "mirror_domains is left out: KeyError")
    ledger.add("annotate", "why not", node())
    told = r"^1 operator\(s\) stay float .*relu.*: why not. quantising failed in part, .*: mirror_domains is left out"
    with pytest.warns(UserWarning, match=told):
        ledger.warn()


def test_the_reason_is_written_on_the_node_beside_what_is_there():
    relu = node()
    relu.meta["custom"] = {"mine": 1}
    assert not is_left_float(relu)
    Ledger().add("observe", "why not", relu)
    assert relu.meta["custom"] == {"mine": 1, REASON_KEY: "observe: why not"}
    assert is_left_float(relu)


def test_what_is_no_operator_is_not_listed_and_a_copy_writes_into_the_same_ledger():
    ledger = Ledger()
    ledger.add("observe", "why not", next(iter(node().graph.nodes)))
    assert list(ledger) == []
    ledger = Ledger()
    assert copy.deepcopy([ledger])[0] is ledger


def test_the_reason_reaches_the_edge_program():
    quantizer = quantizer_of(profile="TOSA-1.0+INT")
    ((_, mean_over_no_dim, words),) = TRANSFORM_INT
    with pytest.warns(UserWarning, match="stay float because quantising them failed"):
        graph_module = converted(Stubborn(mean_over_no_dim), quantizer, ramp())
    (entry,) = quantizer.left_float
    assert (entry.node, entry.op, entry.stage) == ("mean", "aten::mean", "transform")
    assert words in entry.reason
    assert entry.source.startswith("stubborn.py:")
    marked = [n for n in edge_program(graph_module, ramp()).graph.nodes if is_left_float(n)]
    assert any("mean" in n.name for n in marked)
