"""The reference model in a child process: its crash or endless loop costs the proof, not the export."""

import multiprocessing
import os
import signal
import sys
import time

import pytest
import torch
from lowering import PROFILES, codes_apart, delegates, lower, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner
from safe_arm.core.errors import DemotionWarning
from safe_arm.passes.manager import CORRECTIONS
from safe_arm.verification import model_process
from safe_arm.verification.delegate import arranged
from safe_arm.verification.model_process import ModelProcess, NoResultError
from safe_arm.verification.reference_model import ReferenceModelError, run_arrays, run_tosa
from safe_arm.verification.stimuli import stimuli

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the model runs in this process")


@pytest.fixture
def inputs(delegate):
    first = next(stimuli(delegate.program)).inputs
    return arranged(delegate.flatbuffer, delegate.program, first)


def faulty(monkeypatch, fault):
    """Have the model do something else in the child, which is forked with it."""
    monkeypatch.setattr(model_process, "run_arrays", lambda *given: fault())


def test_it_gives_what_the_model_gives_here_and_one_child_runs_everything(delegate, inputs):
    wanted = run_tosa(delegate.flatbuffer, inputs)
    before = multiprocessing.active_children()
    with ModelProcess(60) as model:
        assert multiprocessing.active_children() == before
        for _ in range(3):
            assert all(map(torch.equal, model(delegate.flatbuffer, inputs), wanted))
            assert len(multiprocessing.active_children()) == len(before) + 1
    assert multiprocessing.active_children() == before


def outputs_sent(flatbuffer, inputs, pipe):
    with ModelProcess(60) as model:
        pipe.send([output.numpy() for output in model(flatbuffer, inputs)])
    pipe.send(multiprocessing.current_process().daemon)


def test_a_worker_of_a_pool_or_cluster_proves_too(delegate, inputs):
    """It is daemonic, and those may have no children; then nothing was proven."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    worker = fork.Process(target=outputs_sent, args=(delegate.flatbuffer, inputs, theirs), daemon=True)
    worker.start()
    theirs.close()
    wanted = run_tosa(delegate.flatbuffer, inputs)
    assert all(map(torch.equal, map(torch.from_numpy, ours.recv()), wanted))
    assert ours.recv() is True
    worker.join()


def test_what_the_model_rejects_it_rejects_with_the_same_words(delegate):
    wrong = [torch.zeros(1, 2, 3, dtype=torch.int8)]
    with pytest.raises(ReferenceModelError) as here:
        run_tosa(delegate.flatbuffer, wrong)
    with ModelProcess(60) as model, pytest.raises(ReferenceModelError) as there:
        model(delegate.flatbuffer, wrong)
    assert str(here.value) == str(there.value)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (os.abort, "was ended by signal 6"),
        (lambda: os._exit(3), "exited with 3"),
        (lambda: time.sleep(60), "did not finish within 0.5 s"),
        (lambda: [][0], "fails: IndexError: list index out of range"),
        (lambda: (_ for _ in ()).throw(MemoryError()), "runs out of memory"),
    ],
    ids=["abort", "exit", "hang", "exception", "memory"],
)
def test_what_ends_the_model_is_no_result_and_the_next_run_has_a_new_child(monkeypatch, delegate, inputs, fault, words):
    with ModelProcess(0.5 if "finish" in words else 60) as model:
        faulty(monkeypatch, fault)
        with pytest.raises(NoResultError, match=words):
            model(delegate.flatbuffer, inputs)
        model._end()
        monkeypatch.setattr(model_process, "run_arrays", run_arrays)
        assert all(map(torch.equal, model(delegate.flatbuffer, inputs), run_tosa(delegate.flatbuffer, inputs)))


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (os.abort, ReferenceModelError, "crashes on this delegate: it was ended by signal 6"),
        (lambda: os._exit(3), ReferenceModelError, "crashes on this delegate: it exited with 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), NoResultError, "was ended by signal 9"),
    ],
    ids=["abort", "exit", "killed from outside"],
)
def test_a_model_that_crashes_on_one_delegate_alone_rejects_it(monkeypatch, delegate, inputs, fault, error, words):
    def of_others(flatbuffer, arrays):
        return fault() if flatbuffer == delegate.flatbuffer else run_arrays(flatbuffer, arrays)

    monkeypatch.setattr(model_process, "run_arrays", of_others)
    with ModelProcess(60) as model:
        for _ in "ab":
            with pytest.raises(error, match=words):
                model(delegate.flatbuffer, inputs)
    assert multiprocessing.active_children() == []


def test_what_crashes_the_model_is_demoted(profile):
    """Known issue S44: a convolution of more channels than it gets."""
    net = Lambda(lambda m, x: m.conv(torch.cat((x, x, x, x), 1)))
    gray = (image()[0][:, :1],)
    graph_module = quantize(net, gray, tosa(profile))
    without = tuple(correction for correction in CORRECTIONS if correction.name != "whole-joins")
    partitioner = SafeArmPartitioner(tosa(profile), corrections=without)
    with pytest.warns(DemotionWarning, match="100.0 % of the MACs"):
        manager = lower(graph_module, gray, partitioner)
    assert codes_apart(manager, graph_module, gray) == 0
    (demoted,) = partitioner.report.demoted
    assert demoted.op == "aten::convolution"
    assert demoted.reason == "the TOSA reference model crashes on this delegate: it was ended by signal 11"
    assert all(record.verified for record in partitioner.report.verifications)


def test_an_interrupt_ends_the_child(monkeypatch, delegate, inputs):
    before = multiprocessing.active_children()
    with ModelProcess(60) as model:
        model(delegate.flatbuffer, inputs)

        def interrupted(self, seconds):
            raise KeyboardInterrupt

        monkeypatch.setattr(type(model._pipe), "poll", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model(delegate.flatbuffer, inputs)
        assert multiprocessing.active_children() == before


@pytest.mark.parametrize(
    ("fault", "limit", "words"),
    [(os.abort, 60, "was ended by signal 6"), (lambda: time.sleep(60), 0.5, "did not finish within 0.5 s")],
    ids=["crash", "hang"],
)
def test_the_export_goes_on_with_the_delegate_unproven(monkeypatch, small, fault, limit, words):
    faulty(monkeypatch, fault)
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]), tool_time_limit=limit)
    assert delegates(lower(small.graph_module, image(), partitioner)) == delegates(small.manager)
    assert partitioner.report.demoted == ()
    (record,) = partitioner.report.verifications
    assert not record.verified
    assert record.reason == f"not verified: the TOSA reference model {words}"
