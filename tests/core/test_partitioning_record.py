"""One record belongs to one partitioning, and to one thread."""

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace

from safe_arm.core.partitioning_record import Partitioning, current_partitioning, leave_on_shelf, partitioning


def test_a_step_keeps_what_it_does_not_replace():
    before = current_partitioning()
    with partitioning(Partitioning(method="decode")):
        step = replace(current_partitioning(), question="a question")
        with partitioning(step):
            assert current_partitioning() is step
            assert (step.method, step.question) == ("decode", "a question")
        assert current_partitioning() == Partitioning(method="decode")
    assert current_partitioning() is before


def left_behind():
    leave_on_shelf("made")
    with ThreadPoolExecutor(1) as other:
        return current_partitioning(), other.submit(current_partitioning).result()


def test_what_is_left_on_the_shelf_stays_in_its_thread():
    before = current_partitioning()
    here, elsewhere = copy_context().run(left_behind)
    assert here == replace(before, shelf="made", is_over=True)
    assert elsewhere == Partitioning()
    assert current_partitioning() is before
