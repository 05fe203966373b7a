"""Proofs kept in the user's cache: found again if nothing changed, and never in the way of an export."""

import json
import logging
import multiprocessing
import warnings

import faults
import pytest
import torch
from lowering import PROFILES, delegates, lower, quantize, tosa
from mutations import MUTATIONS
from small import Lambda, image

from safe_arm import SafeArmPartitioner
from safe_arm.core.errors import DemotionWarning
from safe_arm.verification import model_process, proof_cache
from safe_arm.verification.proof import Proof

RELU_DROPPED = next(m for m in MUTATIONS if m.id == "relu-dropped")
RIGHT = Proof(
    True, worst=1.0, tried=6, note="verified at (1, 3)", apart_worst=7.0, apart_mean=0.65, apart_output=1,
    apart_unit="integers", ties=("avg_pool2d",), tolerated=("sigmoid", "exp"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    proof_cache._make_room.cache_clear()
    monkeypatch.setenv("SAFE_ARM_PROOF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def graph_module():
    net = Lambda(lambda m, x: torch.sigmoid(torch.cat((torch.relu(m.conv(x)), m.conv_b(x)), 1)))
    return quantize(net, image(), tosa(PROFILES[0]))


@pytest.fixture
def runs(monkeypatch):
    """The flatbuffers that the reference model was given."""
    given = []
    real = model_process.ModelProcess.__call__

    def counted(self, flatbuffer, inputs):
        given.append(flatbuffer)
        return real(self, flatbuffer, inputs)

    monkeypatch.setattr(model_process.ModelProcess, "__call__", counted)
    return given


def exported(graph_module, **options):
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]), non_fuseable="propagate", **options)
    manager = lower(graph_module, image(), partitioner)
    return partitioner.report, delegates(manager)


def test_an_unchanged_delegate_is_not_proven_twice(graph_module, runs):
    first, flatbuffers = exported(graph_module)
    assert len(runs) == 6
    again, same = exported(graph_module)
    assert len(runs) == 6
    assert same == flatbuffers
    assert [(v.verified, v.tried, v.worst) for v in again.verifications] == [(True, 6, 0.0)]
    assert first.verifications[0].note == ""
    assert again.verifications[0].note == "verified, in an earlier run"


def test_another_device_budget_or_weight_is_proven_anew(graph_module, runs):
    exported(graph_module)
    exported(graph_module, verify_budget=None)
    assert len(runs) == 12
    other = quantize(Lambda(lambda m, x: torch.sigmoid(m.conv(x)) * 2), image(), tosa(PROFILES[0]))
    exported(other)
    assert len(runs) == 18


def test_samples_of_the_user_s_are_run_each_time(graph_module, runs):
    for _ in range(2):
        exported(graph_module, verify_samples=[image()])
    assert len(runs) == 14


def test_a_delegate_that_became_wrong_is_caught_and_nothing_wrong_is_kept(graph_module, cache, by_measurement_alone):
    exported(graph_module)
    for _ in range(2):
        with RELU_DROPPED.planted(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DemotionWarning)
            report, _ = exported(graph_module)
        assert {verdict.stage for verdict in report.demoted} == {"verify"}
    assert all(json.loads(file.read_text())["proof"] for file in cache.iterdir())


def halved(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    "damage",
    [
        halved,
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"\xff\x00"),
        lambda file: file.write_text("[]"),
        lambda file: file.write_text(file.read_text().replace('"worst": 0.0', '"worst": 9.0')),
        lambda file: (file.unlink(), file.mkdir()),
    ],
    ids=["half-written", "empty", "bytes", "other-json", "changed", "directory"],
)
def test_a_corrupt_proof_is_made_again_without_a_word(graph_module, cache, runs, damage, caplog, recwarn):
    exported(graph_module)
    (file,) = cache.iterdir()
    damage(file)
    recwarn.clear()
    with caplog.at_level(logging.DEBUG, logger="safe_arm"):
        report, _ = exported(graph_module)
    assert len(runs) == 12
    assert report.verifications[0].verified
    ours = [record for record in caplog.records if record.name.startswith("safe_arm")]
    assert {record.levelno for record in ours} == {logging.DEBUG}
    assert "cannot be used" in ours[0].message
    assert not [warning for warning in recwarn if "proof" in str(warning.message)]


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


def write_many(number):
    for _ in range(50):
        proof_cache.keep("shared", RIGHT)
        assert proof_cache.recall("shared") == RIGHT


def test_two_processes_with_the_same_proof(cache):
    fork = multiprocessing.get_context("fork")
    both = [fork.Process(target=write_many, args=(number,)) for number in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert [file.name for file in cache.iterdir()] == ["shared.json"]


def test_it_does_not_grow_for_ever(monkeypatch, cache):
    monkeypatch.setattr(proof_cache, "MOST", 10)
    for number in range(20):
        proof_cache.keep(str(number), RIGHT)
    proof_cache._make_room.cache_clear()
    proof_cache.keep("last", RIGHT)
    assert len(list(cache.iterdir())) == 11
