"""Blame: the pass, the node in its hands, the message; and what is never swallowed."""

import errno

import pytest
import torch
from spying import raising
from torch.fx import Graph

from safe_arm.core.errors import ToolError
from safe_arm.core.exceptions import attempted
from safe_arm.core.failure import QUOTED, failure_of, note_pass
from safe_arm.core.origins import ORIGIN_KEY, note_node


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


def in_a_pass(error=None):
    nodes = [node_named("innocent"), node_named("the_culprit"), node_named("later")]
    return attempted(RewriteThingsPass(error).call, nodes)


def wrapped(caught):
    """As exir's pass manager does: a new exception from the old one."""

    def call():
        raise Exception("An error occurred when running the pass") from caught.causes[-1]

    return attempted(call)


def of(error, names=None):
    return failure_of(attempted(raising(error)), names)


@pytest.mark.parametrize("wrap", [wrapped, lambda caught: caught], ids=["wrapped", "as it is"])
def test_the_node_in_the_innermost_frame_and_its_pass(wrap):
    failure = failure_of(wrap(in_a_pass()))
    assert (failure.where, failure.suspects[0]) == ("RewriteThingsPass", "the_culprit")
    assert failure.message == "ValueError: no such thing"


def test_what_a_boundary_noted_comes_before_what_frames_hold():
    caught = in_a_pass()
    for name in ("TheInnermostPass", "outer"):
        note_pass(caught.root, name)
    note_node(caught.root, node_named("the_real_one"))
    failure = failure_of(caught)
    assert (failure.where, failure.suspects[:2]) == ("TheInnermostPass", ("the_real_one", "the_culprit"))


@pytest.mark.parametrize(
    ("error", "environment"),
    [
        pytest.param(OSError(errno.ENOSPC, "No space left on device"), True, id="full disk"),
        pytest.param(FileNotFoundError(errno.ENOENT, "out_vela.npz"), False, id="Vela wrote nothing"),
        pytest.param(RuntimeError("bad operator"), False, id="an operator"),
    ],
)
def test_the_machine_s_fault_is_told_from_an_operator_s(error, environment):
    assert failure_of(in_a_pass(error)).environment is environment


def test_a_tool_s_message_names_the_node_of_the_lowered_graph():
    error = ToolError("Vela", "Vela exits 1: tosa_conv_3: bad", "vela x.tosa")
    failure = of(error, {"tosa_conv_3": "conv_1"})
    assert (failure.where, failure.suspects, failure.command) == ("Vela", ("conv_1",), "vela x.tosa")


def test_two_failures_of_one_kind():
    first, second = (of(ValueError(f"node aten_add_{i} has {i} inputs")) for i in (1, 23))
    assert first.kind == second.kind
    assert first.kind != of(ValueError("node aten_add_1 has no inputs")).kind


def test_a_message_is_one_line_of_bounded_length():
    message = of(ValueError("many\nlines " * 200)).message
    assert "\n" not in message
    assert len(message) == QUOTED + 3


def test_a_failure_without_a_message_names_what_was_executed():
    def executed():
        try:
            next(iter(()))
        except StopIteration as error:
            raise RuntimeError("While executing %tosa_const_shape : [num_users=1]") from error

    assert (
        failure_of(attempted(executed)).message == "StopIteration without a message, while executing tosa_const_shape"
    )
    assert failure_of(in_a_pass(ValueError())).message == "ValueError without a message"
