"""The tables of a signature are built once, and anew when an input comes, goes or is renamed."""

import dataclasses

import pytest
import torch
from patches_of import patches_of
from small import Lambda, image
from torch.export import graph_signature
from torch.export.graph_signature import ExportGraphSignature

from safe_arm._compat.patches import Patches
from safe_arm.acceleration import signatures


@pytest.fixture
def built(monkeypatch):
    """Counts the tables that are built."""
    count = []
    stock = graph_signature._immutable_dict

    def counting(items):
        count.append(1)
        return stock(items)

    monkeypatch.setattr(graph_signature, "_immutable_dict", counting)
    names = [patch.name for patch in patches_of(signatures)]
    before = {name: ExportGraphSignature.__dict__[name] for name in names}
    patches = Patches()
    patches.install(patches_of(signatures))
    yield count
    patches.uninstall()
    assert {name: ExportGraphSignature.__dict__[name] for name in names} == before


def signature():
    return torch.export.export(Lambda(lambda m, x: m.conv(x)), image()).graph_signature


def test_stock_builds_a_table_for_every_lookup_and_ours_builds_one(built):
    one = signature()
    built.clear()
    *_, expected = [dict(one.inputs_to_parameters) for _ in range(3)]
    assert len(built) == 3
    built.clear()
    with signatures.cached():
        assert [dict(one.inputs_to_parameters) for _ in range(3)] == [expected] * 3
        assert len(built) == 1
        assert dict(signature().inputs_to_parameters) == expected
        assert one.inputs_to_buffers == {}
    assert one.inputs_to_parameters == expected


CHANGES = {
    "gone": lambda specs: specs.pop(0),
    "come": lambda specs: specs.insert(0, dataclasses.replace(specs[0], arg=graph_signature.TensorArgument("new"))),
    "swapped": lambda specs: specs.__setitem__(0, dataclasses.replace(specs[0], target="other")),
    "renamed in place": lambda specs: setattr(specs[0].arg, "name", "renamed"),
    "moved": lambda specs: specs.reverse(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_input_is_seen(built, change):
    one = signature()
    with signatures.cached():
        before = dict(one.inputs_to_parameters)
        CHANGES[change](one.input_specs)
        after = dict(one.inputs_to_parameters)
    assert after == dict(one.inputs_to_parameters)
    assert after != before or change == "moved"
