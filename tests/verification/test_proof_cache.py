"""Proofs kept in the user's cache: found again if nothing changed, and never in the way of an export."""

import logging
from dataclasses import replace

import faults
import pytest
import torch
from lowering import PROFILES, delegates, lower_safely, tosa
from small import image
from spying import noted

from safe_arm.partitioner.proving import Prover
from safe_arm.verification import model_process, proof_cache
from safe_arm.verification.proof import Proof

RIGHT = Proof(
    True, worst=1.0, tried=6, note="verified at (1, 3)", apart_worst=7.0, apart_mean=0.65, apart_output=1,
    apart_unit="integers", ties=("avg_pool2d",), tolerated=("sigmoid", "exp"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    proof_cache._make_room.cache_clear()
    monkeypatch.setenv("SAFE_ARM_PROOF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def runs(monkeypatch):
    """The flatbuffers that the reference model was given."""
    return noted(monkeypatch, model_process.ModelProcess, "__call__", lambda self, flatbuffer, inputs: flatbuffer)


def exported(graph_module):
    manager, partitioner = lower_safely(graph_module, image(), tosa(PROFILES[0]), non_fuseable="propagate")
    return partitioner.report, delegates(manager)


def test_an_unchanged_delegate_is_not_proven_twice_but_a_corrupt_proof_is_made_again(small, runs, cache):
    graph_module = small.graph_module
    first, flatbuffers = exported(graph_module)
    assert len(runs) == 6
    again, same = exported(graph_module)
    assert len(runs) == 6
    assert same == flatbuffers
    assert [(v.verified, v.tried, v.worst) for v in again.verifications] == [(True, 6, 0.0)]
    assert first.verifications[0].note == ""
    assert again.verifications[0].note == "verified, in an earlier run"
    halved(*cache.iterdir())
    anew, _ = exported(graph_module)
    assert len(runs) == 12
    assert [(v.verified, v.note) for v in anew.verifications] == [(True, "")]


def test_a_proof_s_key_has_all_that_it_depends_on():
    prover = Prover(False, budget=9, device="reference-model")
    others = {"device": "vulkan", "budget": None, "tolerance": 1, "float_borders": True}
    keys = {replace(prover, **{name: value}).key("cut", b"flatbuffer") for name, value in others.items()}
    keys |= {prover.key("cut", b"flatbuffer"), prover.key("cut", b"of another weight")}
    keys.add(prover.key("another", b"flatbuffer"))
    assert len(keys) == len(others) + 3
    assert replace(prover, samples=[image()]).key("cut", b"flatbuffer") == "", "they are run each time"


def test_a_digest_has_names_dtypes_shapes_and_values():
    ones = torch.ones(2, 3)
    alike = {"a": ones, "b": ones * 2}, {"b": ones + 1, "a": ones.clone()}
    others = {"c": ones}, {"a": ones}, {"a": ones.int()}, {"a": ones.T}, {"a": ones * 2}, {"a": torch.ones(())}
    assert len(set(map(proof_cache.digest, alike))) == 1
    assert len(set(map(proof_cache.digest, [*alike, *others]))) == 1 + len(others)


def test_nothing_that_is_not_verified_is_kept(cache):
    proof_cache.keep("a", replace(RIGHT, verified=False))
    assert not cache.exists()


def halved(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    "damage",
    [
        halved,
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"\xff\x00"),
        lambda file: file.write_text("[]"),
        lambda file: file.write_text(file.read_text().replace('"worst": 1.0', '"worst": 9.0')),
        lambda file: (file.unlink(), file.mkdir()),
        lambda file: file.replace(file.with_name("b.json")),
    ],
    ids=["half-written", "empty", "bytes", "other-json", "changed", "directory", "of another delegate"],
)
def test_a_corrupt_proof_is_none_and_costs_a_line_at_debug_level(cache, damage, caplog, recwarn):
    proof_cache.keep("a", RIGHT)
    damage(cache / "a.json")
    with caplog.at_level(logging.DEBUG):
        (known,) = (file.stem for file in cache.iterdir())
        assert proof_cache.recall(known) is None
    (record,) = caplog.records
    assert (record.levelno, "cannot be used" in record.message) == (logging.DEBUG, True)
    assert not recwarn


def test_proofs_of_another_version_are_not_found(monkeypatch):
    before = proof_cache.key("a")
    proof_cache.keep(before, RIGHT)
    assert proof_cache.recall(before) == RIGHT
    monkeypatch.setattr(proof_cache, "versions", lambda: {"executorch": "9.9"})
    proof_cache._stamp.cache_clear()
    assert proof_cache.recall(proof_cache.key("a")) is None
    proof_cache._stamp.cache_clear()


def test_a_cache_that_cannot_be_written_costs_a_line_at_debug_level(cache, caplog):
    cache.write_text("a file where the folder should be")
    with caplog.at_level(logging.DEBUG, logger="safe_arm"):
        proof_cache.keep("a", RIGHT)
        assert proof_cache.recall("a") is None
    assert len(caplog.records) == 1


def test_a_full_disk_leaves_nothing_behind(cache, caplog):
    with faults.disk_full(), caplog.at_level(logging.DEBUG, logger="safe_arm"):
        proof_cache.keep("a", RIGHT)
    assert "No space left" in caplog.text
    assert list(cache.iterdir()) == []


def test_it_can_be_switched_off_and_follows_the_user_s_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SAFE_ARM_PROOF_CACHE", "0")
    proof_cache.keep("a", RIGHT)
    assert proof_cache.recall("a") is None
    monkeypatch.delenv("SAFE_ARM_PROOF_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert proof_cache.folder() == tmp_path / "safe_arm" / "proofs"
    proof_cache.keep("a", RIGHT)
    assert proof_cache.recall("a") == RIGHT


def test_it_does_not_grow_for_ever(monkeypatch, cache):
    monkeypatch.setattr(proof_cache, "MOST", 10)
    for number in range(20):
        proof_cache.keep(str(number), RIGHT)
    proof_cache._make_room.cache_clear()
    proof_cache.keep("last", RIGHT)
    assert len(list(cache.iterdir())) == 11
