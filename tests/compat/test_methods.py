"""A partitioner can tell which method of a program it is handed, however methods and partitioners are paired."""

import pytest
import torch
from executorch.exir import to_edge, to_edge_transform_and_lower
from executorch.exir.backend.backend_api import to_backend
from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from lowering import EDGE, PROFILES, lower_program, tosa
from small import Lambda, image
from spying import noted

from safe_arm import SafeArmPartitioner, seams
from safe_arm._compat.methods import method_name


class Asks(Partitioner):
    """Proposes nothing and notes what it was handed."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def partition(self, exported_program):
        self.asked.append((method_name(), len(exported_program.graph.nodes)))
        return PartitionResult(exported_program, {})


@pytest.fixture(autouse=True)
def _installed():
    seams.install()


def programs(names):
    """Methods of different length, but those of one name without its number are the same program."""
    exported = {
        "enc": torch.export.export(Lambda(lambda m, x: torch.relu(x)), image()),
        "dec": torch.export.export(Lambda(lambda m, x: torch.relu(x) + 1), image()),
        "forward": torch.export.export(Lambda(lambda m, x: torch.relu(x) + x * x), image()),
    }
    return {name: exported[name.rstrip("0123456789")] for name in names}


@pytest.mark.parametrize("names", [("forward",), ("enc", "dec"), ("dec", "forward", "enc"), ("enc1", "enc2", "dec")])
def test_one_partitioner_for_all_methods(names):
    partitioner = Asks()
    manager = to_edge(programs(names), compile_config=EDGE)
    expected = [(name, len(manager.exported_program(name).graph.nodes)) for name in names]
    manager.to_backend(partitioner)
    assert partitioner.asked == expected
    partitioner.asked.clear()
    lower_program(programs(names), partitioner)
    assert [name for name, _ in partitioner.asked] == list(names)


def test_a_partitioner_for_each_method_and_two_in_a_chain():
    first, second, both = Asks(), Asks(), Asks()
    each = {"enc": [first, both], "dec": [second, both]}
    to_edge_transform_and_lower(programs(each), partitioner=each, compile_config=EDGE)
    assert [[name for name, _ in p.asked] for p in (first, second, both)] == [["enc"], ["dec"], ["enc", "dec"]]


def test_only_some_methods_are_partitioned():
    partitioner = Asks()
    to_edge(programs(("enc", "dec")), compile_config=EDGE).to_backend({"dec": partitioner})
    assert [name for name, _ in partitioner.asked] == ["dec"]


def test_outside_it_is_forward_and_after_a_failure_too():
    class Fails(Partitioner):
        def partition(self, exported_program):
            raise ZeroDivisionError(method_name())

    manager = to_edge(programs(("enc",)), compile_config=EDGE)
    with pytest.raises(ZeroDivisionError, match="enc"):
        manager.to_backend(Fails())
    assert method_name() == "forward"
    partitioner = Asks()
    to_backend(manager.exported_program("enc"), partitioner)
    assert [name for name, _ in partitioner.asked] == ["forward"]


def test_ours_learns_it_too(monkeypatch):
    asked = noted(monkeypatch, SafeArmPartitioner, "partition", lambda *_: method_name())
    partitioner = SafeArmPartitioner(tosa(PROFILES[1]), verify=False)
    lower_program(programs(("enc", "dec")), partitioner)
    assert asked == ["enc", "dec"]
