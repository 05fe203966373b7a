"""The tables of a signature are built once, and anew when an input comes, goes or is renamed."""

import dataclasses
from contextlib import nullcontext

import pytest
import torch
from small import Lambda, image
from spying import noted
from torch._export.utils import _populate_param_buffer_metadata_to_new_gm
from torch.export import graph_signature
from torch.export.graph_signature import ExportGraphSignature

from safe_arm.acceleration import signatures, switch
from safe_arm.acceleration.shortcuts import taking


@pytest.fixture
def built(monkeypatch):
    """Counts the tables that are built."""
    return noted(monkeypatch, graph_signature, "_immutable_dict")


def program():
    return torch.export.export(Lambda(lambda m, x: m.conv(x)), image())


def cached():
    one = program()
    signatures.cache_tables(one)
    return one.graph_signature


def test_stock_builds_a_table_for_every_lookup_and_ours_builds_one(built):
    stock, ours = program().graph_signature, cached()
    built.clear()
    *_, expected = [dict(stock.inputs_to_parameters) for _ in range(3)]
    assert len(built) == 3
    built.clear()
    assert [dict(ours.inputs_to_parameters) for _ in range(3)] == [expected] * 3
    assert len(built) == 1
    assert dict(cached().inputs_to_parameters) == expected
    assert ours.inputs_to_buffers == ours.inputs_to_lifted_tensor_constants == {}
    for name in ("user_inputs", "non_persistent_buffers"):
        assert getattr(ours, name) == getattr(stock, name)
    assert str(ours) == str(stock)


def test_a_cached_signature_stays_and_a_program_of_stock_s_has_none(monkeypatch):
    one = program()
    signatures.cache_tables(one)
    signature = one.graph_signature
    signatures.cache_tables(one)
    assert one.graph_signature is signature
    monkeypatch.setenv(switch.SWITCH, "0")
    other = program()
    signatures.cache_tables(other)
    assert type(other.graph_signature) is ExportGraphSignature


CHANGES = {
    "gone": lambda one: one.input_specs.pop(0),
    "come": lambda one: one.input_specs.insert(
        0, dataclasses.replace(one.input_specs[0], arg=graph_signature.TensorArgument("new"))
    ),
    "swapped": lambda one: one.input_specs.__setitem__(0, dataclasses.replace(one.input_specs[0], target="other")),
    "another list": lambda one: setattr(one, "input_specs", one.input_specs[1:]),
    "renamed": lambda one: one.replace_all_uses(one.input_specs[0].arg.name, "renamed"),
    "moved": lambda one: one.input_specs.reverse(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_input_is_seen(built, change):
    one = cached()
    before = dict(one.inputs_to_parameters)
    CHANGES[change](one)
    after = dict(one.inputs_to_parameters)
    assert after == dict(ExportGraphSignature(one.input_specs, []).inputs_to_parameters)
    assert after != before or change == "moved"


def tables_of_the_inputs(built, how):
    one = program()
    populate = signatures.looking_up(_populate_param_buffer_metadata_to_new_gm)
    built.clear()
    with how:
        populate({}, one.graph_module, one.graph_signature)
    return len(built)


def test_a_trace_that_takes_shortcuts_builds_one_table_of_each_kind(built):
    assert tables_of_the_inputs(built, taking(late_code=True)) == 2
    assert tables_of_the_inputs(built, nullcontext()) > 2
