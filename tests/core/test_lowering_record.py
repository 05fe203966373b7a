"""One record belongs to one lowering, and to one thread."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from safe_arm.core.lowering_record import Lowering, breach, current_lowering, lowering


def test_outside_of_a_lowering_nothing_is_kept():
    current_lowering().printed.append("lost")
    assert current_lowering() == Lowering()


def test_a_step_leaves_what_it_has_to_in_the_record_of_the_whole():
    with lowering(Lowering(time_limit=2.0)) as whole:
        with lowering(replace(current_lowering(), manager=object)) as step:
            assert step.time_limit == 2.0
            current_lowering().notes.append(("correction", "S1", "conv"))
        assert current_lowering() is whole
        assert whole.manager is None
    assert whole.notes == [("correction", "S1", "conv")]
    assert current_lowering() == Lowering()


def test_a_lowering_in_a_lowering_has_a_record_of_its_own():
    with lowering(Lowering()) as outer, lowering(Lowering()) as inner:
        current_lowering().flatbuffers.append(b"inner")
    assert (outer.flatbuffers, inner.flatbuffers) == ([], [b"inner"])


def test_another_thread_is_at_none_and_an_error_ends_it():
    with pytest.raises(ZeroDivisionError), lowering(Lowering(manager=object)), ThreadPoolExecutor(1) as other:
        assert other.submit(current_lowering).result().manager is None
        raise ZeroDivisionError
    assert current_lowering().manager is None


def test_a_breach_waits_for_the_backend_or_is_raised_at_once():
    with lowering(Lowering(manager=object)) as left:
        breach(ValueError("broken"))
    assert [str(each) for each in left.breaches] == ["broken"]
    with pytest.raises(ValueError, match="broken"):
        breach(ValueError("broken"))
    with lowering(Lowering()), pytest.raises(ValueError, match="broken"):
        breach(ValueError("broken"))
