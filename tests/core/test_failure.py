"""Blame: the pass, the node in its hands, the message; and what is never swallowed."""

import errno

import pytest
import torch
from torch.fx import Graph

from safe_arm.core.errors import MissingToolError, ToolError
from safe_arm.core.failure import QUOTED, failure_of
from safe_arm.core.origins import ORIGIN_KEY


def node_named(origin):
    node = Graph().call_function(torch.relu, ())
    node.meta[ORIGIN_KEY] = origin
    return node


class RewriteThingsPass:
    def __init__(self, error=None) -> None:
        self.error = error or ValueError("no such thing")

    def call(self, nodes):
        for node in nodes:
            self.rewrite(node)

    def rewrite(self, node):
        other = node_named("an_onlooker")
        if node.meta[ORIGIN_KEY] == "the_culprit":
            del other
            raise self.error


def raised(function, *args):
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def in_a_pass(error=None):
    return raised(
        RewriteThingsPass(error).call, [node_named("innocent"), node_named("the_culprit"), node_named("later")]
    )


def wrapped(error, cause):
    """As exir's pass manager does: a new exception from the old one."""
    try:
        raise error from cause
    except type(error) as both:
        return both


def test_the_node_in_the_innermost_frame_and_its_pass():
    failure = failure_of(in_a_pass())
    assert failure.where == "RewriteThingsPass"
    assert failure.suspects[0] == "the_culprit"
    assert failure.said == "ValueError: no such thing"


def test_wrapping_hides_neither():
    failure = failure_of(wrapped(Exception("An error occurred when running the pass"), in_a_pass()))
    assert (failure.where, failure.suspects[0]) == ("RewriteThingsPass", "the_culprit")
    assert failure.said == "ValueError: no such thing"


@pytest.mark.parametrize("fatal", [MemoryError, KeyboardInterrupt])
def test_what_is_never_swallowed(fatal):
    with pytest.raises(fatal):
        failure_of(wrapped(Exception("wrapped"), in_a_pass(fatal())))


@pytest.mark.parametrize(
    ("error", "environment"),
    [
        pytest.param(OSError(errno.ENOSPC, "No space left on device"), True, id="full disk"),
        pytest.param(
            MissingToolError("model-converter", "Unable to locate a model converter executable."),
            True,
            id="no converter",
        ),
        pytest.param(FileNotFoundError(errno.ENOENT, "out_vela.npz"), False, id="Vela wrote nothing"),
        pytest.param(RuntimeError("bad operator"), False, id="an operator"),
    ],
)
def test_the_machine_s_fault_is_told_from_an_operator_s(error, environment):
    assert failure_of(in_a_pass(error)).environment is environment


def test_a_tool_s_message_names_the_node_of_the_lowered_graph():
    failure = failure_of(ToolError("Vela", "Vela exits 1: tosa_conv_3: bad", "vela x.tosa"), {"tosa_conv_3": "conv_1"})
    assert (failure.where, failure.suspects, failure.command) == ("Vela", ("conv_1",), "vela x.tosa")


def test_two_failures_of_one_kind():
    first, second = (failure_of(ValueError(f"node aten_add_{i} has {i} inputs")) for i in (1, 23))
    assert first.kind == second.kind
    assert first.kind != failure_of(ValueError("node aten_add_1 has no inputs")).kind


def test_a_message_is_one_line_of_bounded_length():
    said = failure_of(ValueError("many\nlines " * 200)).said
    assert "\n" not in said
    assert len(said) == QUOTED + 3
