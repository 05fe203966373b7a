"""Each property can fail: what breaks it gives it away."""

from types import SimpleNamespace

import pytest
import torch

from tests.fuzz import properties
from tests.fuzz.cases import Case, Config, Input

CASE = Case("", (Input((1,)),), Config("INT"))
VERDICT = SimpleNamespace(op="aten::add", name="add", issue="S1", delegate=None, reasons=(), reason="")


def made(**changed):
    return SimpleNamespace(
        **{
            "case": CASE,
            "programs": {"forward": "program"},
            "manager": "manager",
            "partitioner": None,
            "undefined": False,
        }
        | changed
    )


@pytest.fixture
def lowered_bytes(monkeypatch):
    """What one lowering after the other gives."""
    given = []
    monkeypatch.setattr(properties, "lowered", lambda *args: None)
    monkeypatch.setattr(properties, "delegates", lambda manager: given.pop(0))
    return given


def test_a_fallback_without_a_reason():
    partitioner = SimpleNamespace(report=SimpleNamespace(verdicts=[VERDICT]))
    assert properties.explained(made(partitioner=partitioner)) == "no reason: ['aten::add']"
    partitioner.report.verdicts = [SimpleNamespace(**vars(VERDICT) | {"reasons": ("a",), "reason": "a"})]
    assert properties.explained(made(partitioner=partitioner)) == ""


def test_other_bytes(lowered_bytes):
    lowered_bytes[:] = [[b"1"], [b"2"]]
    assert properties.twice(made()) == "other bytes"
    lowered_bytes[:] = [[b"1"], [b"1"]]
    assert properties.twice(made()) == ""


def test_stock_s_bytes_before_and_after(lowered_bytes):
    lowered_bytes[:] = [[b"1"], [b"2"]]
    assert properties.stock_bytes(made()) == "other bytes"
    lowered_bytes[:] = [[b"1"], [b"1"]]
    assert properties.stock_bytes(made()) == ""


def test_a_symbol_that_is_lost(monkeypatch):
    manager = SimpleNamespace(exported_program=lambda name: "lowered")
    dynamic = Case("", CASE.inputs, Config(dynamic=True))
    monkeypatch.setattr(properties, "symbols", {"program": ("d0",), "lowered": ("4",)}.get)
    alone = ["4 in a cat"]
    monkeypatch.setattr(properties, "_without_delegates", lambda program: alone[0])
    assert "became" in properties.symbols_kept(made(case=dynamic, manager=manager))
    alone[:] = ["lowered"]  # ExecuTorch itself did it.
    assert properties.symbols_kept(made(case=dynamic, manager=manager)) == ""
    assert properties.symbols_kept(made(manager=manager)) == ""


def test_a_profile_that_refuses_another_island(monkeypatch):
    def partitioner(case, spec):
        return SimpleNamespace(report=SimpleNamespace(fallbacks=[VERDICT] if "FP" in spec else []))

    monkeypatch.setattr(properties, "_partitioner", partitioner)
    monkeypatch.setattr(properties, "lowered", lambda *args: None)
    assert properties.profiles(made()) == "INT refuses [], INT+FP ['add']"


@pytest.mark.parametrize(
    ("given", "apart"),
    [
        (lambda x: x, False),
        (lambda x: x + 0.01, True),
        (lambda x: x * (x < 0.9), False),
        (lambda x: x * (x < 0.8), True),
    ],
)
def test_what_is_prepared_is_another_net(monkeypatch, given, apart):
    monkeypatch.setattr(properties, "nets", lambda case: {"forward": lambda x: x})
    found = properties.as_given(made(references={"forward": given}, fresh=[(torch.linspace(0.005, 1.0, 200),)]))
    assert bool(found) is apart


def test_of_what_is_0_but_for_rounding_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(properties, "nets", lambda case: {"forward": torch.zeros_like})
    for given, found in ((lambda x: x * 1e-7, False), (lambda x: x, True)):
        assert bool(properties.as_given(made(references={"forward": given}, fresh=[(torch.ones(8),)]))) is found
