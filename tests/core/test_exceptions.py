"""What is fatal reaches the user; everything else becomes a value whose causes end where the call began."""

import pytest
import torch

from safe_arm import UsageError
from safe_arm.core.exceptions import Caught, attempted


def raising(error, cause=None):
    def call():
        if cause is not None:
            raise error from cause
        raise error

    return call


@pytest.mark.parametrize("fatal", [KeyboardInterrupt, MemoryError, torch.OutOfMemoryError, UsageError])
def test_what_is_fatal_goes_on_also_out_of_a_wrapping(fatal):
    with pytest.raises(fatal):
        attempted(raising(fatal("no")))
    with pytest.raises(fatal):
        attempted(raising(Exception("An error occurred when running the pass"), fatal("no")))


@pytest.mark.parametrize("contained", [ValueError, RuntimeError, RecursionError, SystemExit, AssertionError])
def test_everything_else_is_a_value(contained):
    caught = attempted(raising(contained("no")))
    assert isinstance(caught, Caught)
    assert isinstance(caught.root, contained)
    assert caught.reason == f"{contained.__name__}: no"


def test_the_root_comes_first_and_its_first_line_is_the_reason():
    caught = attempted(raising(Exception("wrapped"), KeyError("first\nsecond")))
    assert [type(cause) for cause in caught.causes] == [KeyError, Exception]
    assert caught.reason == r"KeyError: 'first\nsecond'"
    assert attempted(raising(ZeroDivisionError())).reason == "ZeroDivisionError"
    assert attempted(raising(ValueError("One thing.\nWhile executing x"))).reason == "ValueError: One thing."


def test_a_sentence_that_goes_on_in_the_next_line_is_not_cut_off():
    """As that of stock on a norm of order 3 goes on."""
    sentence = ValueError("The order of 3\nis not supported for linalg_vector_norm operator\nmore")
    assert attempted(raising(sentence)).reason == f"ValueError: {' '.join(str(sentence).splitlines()[:2])}"


def test_what_was_raised_while_another_was_handled_has_it_as_its_cause():
    def call():
        try:
            raise KeyError("root")
        except KeyError:
            raise ValueError("then")  # noqa: B904

    assert attempted(call).reason == "KeyError: 'root'"


def test_from_none_ends_the_causes():
    def call():
        try:
            raise MemoryError
        except MemoryError:
            raise ValueError("enough") from None

    assert attempted(call).reason == "ValueError: enough"


@pytest.mark.parametrize("handled", [MemoryError, KeyboardInterrupt, ValueError])
def test_what_the_caller_is_handling_is_no_cause(handled):
    try:
        raise handled("the caller's own")
    except BaseException:
        caught = attempted(raising(RuntimeError("ours")))
    assert caught.reason == "RuntimeError: ours"
    assert len(caught.causes) == 1
