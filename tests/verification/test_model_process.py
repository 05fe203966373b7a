"""The reference model in a process of its own: its crash or endless loop costs the proof, not the export."""

import multiprocessing
import os
import subprocess
import sys

import pytest
import torch
from broken_model import break_model
from lowering import PROFILES, delegates, lower, tosa
from small import image

from safe_arm import SafeArmPartitioner
from safe_arm.verification import model_process
from safe_arm.verification.delegate import arranged
from safe_arm.verification.model_process import ModelProcess
from safe_arm.verification.model_server import NoResultError, ReferenceModelError
from safe_arm.verification.reference_model import run_tosa
from safe_arm.verification.stdout_filter import serializer_warnings_shown
from safe_arm.verification.stimuli import stimuli
from safe_arm.verification.tiny_graph import HIGH, SHAPE, tiny_graph

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there the model runs in this process")


@pytest.fixture
def inputs(delegate):
    first = next(stimuli(delegate.program)).inputs
    return arranged(delegate.flatbuffer, delegate.program, first)


@pytest.fixture
def started(monkeypatch):
    """The processes that are started; none is kept from another test."""
    model_process.end_idle()
    monkeypatch.setattr(model_process, "_idle", [])
    processes = []

    def watched(*args, real=subprocess.Popen, **kwargs):
        processes.append(real(*args, **kwargs))
        return processes[-1]

    monkeypatch.setattr(model_process.subprocess, "Popen", watched)
    yield processes
    model_process.end_idle()


def are_equal(actual, wanted):
    return all(map(torch.equal, actual, wanted))


def test_it_gives_what_the_model_gives_here_and_one_process_runs_everything(delegate, inputs, started):
    wanted = run_tosa(delegate.flatbuffer, inputs)
    for _ in "ab":
        with ModelProcess(60) as model:
            for _ in "abc":
                assert are_equal(model(delegate.flatbuffer, inputs), wanted)
    (process,) = started
    assert process.poll() is None


def test_it_loads_no_torch(delegate, inputs, started, monkeypatch):
    break_model(monkeypatch, "[model_server.np.array('torch' in sys.modules)]")
    with ModelProcess(60) as model:
        assert model(delegate.flatbuffer, inputs) == [torch.tensor(False)]


def test_two_at_a_time_have_each_their_own_and_one_is_kept(delegate, inputs, started):
    with ModelProcess(60) as one, ModelProcess(60) as other:
        one(delegate.flatbuffer, inputs)
        other(delegate.flatbuffer, inputs)
    assert sum(process.poll() is None for process in started) == 1
    assert len(started) == 2


def test_one_that_has_ended_or_is_unlike_what_is_asked_for_is_not_taken(delegate, inputs, started):
    wanted = run_tosa(delegate.flatbuffer, inputs)

    def run():
        with ModelProcess(60) as model:
            assert are_equal(model(delegate.flatbuffer, inputs), wanted)

    run()
    started[0].kill()
    run()
    with serializer_warnings_shown(True):
        run()
    assert [process.poll() is None for process in started] == [False, False, True]


def test_it_ends_when_nothing_comes_for_long(delegate, inputs, started, monkeypatch):
    quick = model_process.PROGRAM.replace("model_server.serve(", "model_server.IDLE_SECONDS = 0.1; model_server.serve(")
    monkeypatch.setattr(model_process, "PROGRAM", quick)
    for _ in "ab":
        with ModelProcess(60) as model:
            model(delegate.flatbuffer, inputs)
        assert started[-1].wait(10) == 0
    assert len(started) == 2


def clamped(pipe):
    with ModelProcess(60) as model:
        (output,) = model(tiny_graph(), [torch.full(SHAPE, 100, dtype=torch.int8)])
    pipe.send((output.unique().tolist(), multiprocessing.current_process().daemon))


def test_a_worker_of_a_pool_or_cluster_proves_too_and_not_in_the_process_that_it_was_forked_with(
    delegate, inputs, started
):
    """It is daemonic, and those may have no children of ``multiprocessing``."""
    wanted = run_tosa(delegate.flatbuffer, inputs)
    with ModelProcess(60) as model:
        model(delegate.flatbuffer, inputs)
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    worker = fork.Process(target=clamped, args=(theirs,), daemon=True)
    worker.start()
    theirs.close()
    assert ours.recv() == ([HIGH], True)
    worker.join()
    with ModelProcess(60) as model:
        assert are_equal(model(delegate.flatbuffer, inputs), wanted)
    assert len(started) == 1


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
        ("os.abort()", "was ended by signal 6"),
        ("os._exit(3)", "exited with 3"),
        ("time.sleep(60)", "did not finish within 0.5 s"),
        ("[][0]", "fails: IndexError: list index out of range"),
        ("(_ for _ in ()).throw(MemoryError())", "runs out of memory"),
    ],
    ids=["abort", "exit", "hang", "exception", "memory"],
)
def test_what_ends_the_model_is_no_result_and_the_next_run_has_a_new_process(
    monkeypatch, delegate, inputs, started, fault, words
):
    with ModelProcess(0.5 if "finish" in words else 60) as model:
        with monkeypatch.context() as broken:
            break_model(broken, fault)
            with pytest.raises(NoResultError, match=words):
                model(delegate.flatbuffer, inputs)
            model._end()
        assert are_equal(model(delegate.flatbuffer, inputs), run_tosa(delegate.flatbuffer, inputs))
    assert sum(process.poll() is None for process in started) == 1


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("os.abort()", ReferenceModelError, "crashes on this delegate: it was ended by signal 6"),
        ("os._exit(3)", ReferenceModelError, "crashes on this delegate: it exited with 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", NoResultError, "was ended by signal 9"),
    ],
    ids=["abort", "exit", "killed from outside"],
)
def test_a_model_that_crashes_on_one_delegate_alone_rejects_it(monkeypatch, delegate, inputs, fault, error, words):
    size = len(delegate.flatbuffer)
    break_model(monkeypatch, f"{fault} if len(flatbuffer) == {size} else real(flatbuffer, inputs)")
    with ModelProcess(60) as model:
        for _ in "ab":
            with pytest.raises(error, match=words):
                model(delegate.flatbuffer, inputs)


def test_an_interrupt_ends_the_process(monkeypatch, delegate, inputs, started):
    with ModelProcess(60) as model:
        model(delegate.flatbuffer, inputs)

        def interrupted(self, seconds):
            raise KeyboardInterrupt

        monkeypatch.setattr(type(model._server.pipe), "poll", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model(delegate.flatbuffer, inputs)
    (process,) = started
    assert process.poll() is not None


def test_where_no_other_python_can_be_started_it_runs_in_this_one(monkeypatch, delegate, inputs, started):
    monkeypatch.setattr(sys, "executable", "")
    with ModelProcess(60) as model:
        assert are_equal(model(delegate.flatbuffer, inputs), run_tosa(delegate.flatbuffer, inputs))
    assert started == []


@pytest.mark.parametrize("closed", [(0,), (0, 1, 2)])
def test_a_service_without_standard_streams_proves_too(delegate, inputs, started, closed):
    wanted = run_tosa(delegate.flatbuffer, inputs)
    copies = {stream: os.dup(stream) for stream in closed}
    for stream in closed:
        os.close(stream)
    try:
        with ModelProcess(60) as model:
            actual = model(delegate.flatbuffer, inputs)
    finally:
        for stream, copy in copies.items():
            os.dup2(copy, stream)
            os.close(copy)
    assert are_equal(actual, wanted)


@pytest.mark.parametrize(
    ("fault", "limit", "words"),
    [("os.abort()", 60, "was ended by signal 6"), ("time.sleep(60)", 0.5, "did not finish within 0.5 s")],
    ids=["crash", "hang"],
)
def test_the_export_goes_on_with_the_delegate_unproven(monkeypatch, small, fault, limit, words):
    break_model(monkeypatch, fault)
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]), tool_time_limit=limit)
    assert delegates(lower(small.graph_module, image(), partitioner)) == delegates(small.manager)
    assert partitioner.report.demoted == ()
    (record,) = partitioner.report.verifications
    assert not record.verified
    assert record.reason == f"not verified: the TOSA reference model {words}"
